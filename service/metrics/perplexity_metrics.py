"""Perplexity from the losses of documents.

exp(sum of -log p over all words / number of words), with a percentile bootstrap 95 % interval over documents:
a resample draws n documents, and its perplexity is that of all their words. Sums are `math.fsum`: the same
columns give the same bits, in whatever order the shards came.

Legend: n documents.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from statistics import quantiles
from typing import Any

from assay.service.contract.results import Metric
from assay.service.metrics.perplexity import Document, perplexity_of, resamples_of


def perplexity_metrics(columns: Mapping[str, Sequence[Any]]) -> dict[str, Metric]:
    """Metrics of one evaluation.

    Args:
        columns: `nll` in nats (None where it is not finite) and `tokens`, each (n,), sorted by document.

    Returns:
        `perplexity`, at least 1, lower is better; `n` counts documents. Its value is None where a loss is not
        finite, or where no word was scored.
    """
    losses, tokens = columns["nll"], columns["tokens"]
    documents: list[Document] = [] if None in losses else list(zip(losses, tokens, strict=True))
    value = perplexity_of(documents)
    cuts = _interval(documents) if value is not None else None
    metric = Metric(
        value=value,
        n=len(losses),
        ci_low=cuts[0] if cuts else None,
        ci_high=cuts[1] if cuts else None,
        ci_method="bootstrap",
        higher_is_better=False,
    )
    return {"perplexity": metric}


def _interval(documents: Sequence[Document]) -> tuple[float, float] | None:
    draws, n = random.Random("metric/perplexity"), len(documents)
    sampled = [perplexity_of(draws.choices(documents, k=n)) for _ in range(resamples_of(n))]
    known = [one for one in sampled if one is not None]
    if len(known) < 2:
        return None
    # Of 39 cuts the first and the last leave 2.5 % outside.
    cuts = quantiles(known, n=40, method="inclusive")
    return cuts[0], cuts[-1]
