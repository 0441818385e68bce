"""Perplexity from the losses of documents.

exp(sum of -log p over all words / number of words), with a percentile bootstrap 95 % interval over documents:
a resample draws n documents, and its perplexity is that of all their words. Sums are `math.fsum`: the same
columns give the same bits, in whatever order the shards came.

Legend: n documents, R resamples.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from statistics import quantiles
from typing import Any

from service.contract.results import Metric

RESAMPLES = 2000
# A resample draws n documents; beyond this many draws R shrinks.
DRAWS = 20_000_000
FEWEST_RESAMPLES = 200


def perplexity_metrics(columns: Mapping[str, Sequence[Any]]) -> dict[str, Metric]:
    """Metrics of one evaluation.

    Args:
        columns: `nll` in nats (None where it is not finite) and `tokens`, each (n,), sorted by document.

    Returns:
        `perplexity`, at least 1, lower is better; `n` counts documents. Its value is None where a loss is not
        finite, or where no word was scored.
    """
    losses, tokens = columns["nll"], columns["tokens"]
    known = bool(losses) and None not in losses and sum(tokens) > 0
    value = _perplexity(list(zip(losses, tokens, strict=True))) if known else None
    cuts = _interval(losses, tokens) if value is not None else None
    metric = Metric(
        value=value,
        n=len(losses),
        ci_low=cuts[0] if cuts else None,
        ci_high=cuts[1] if cuts else None,
        ci_method="bootstrap",
        higher_is_better=False,
    )
    return {"perplexity": metric}


def _perplexity(documents: Sequence[tuple[float, int]]) -> float | None:
    tokens = sum(count for _, count in documents)
    if tokens == 0:
        return None
    mean = math.fsum(loss for loss, _ in documents) / tokens
    return math.exp(mean) if mean < math.log(1e300) else None  # larger numbers are no JSON


def _interval(losses: Sequence[float], tokens: Sequence[int]) -> tuple[float, float] | None:
    documents, n = list(zip(losses, tokens, strict=True)), len(losses)
    draws = random.Random("metric/perplexity")
    count = min(RESAMPLES, max(FEWEST_RESAMPLES, DRAWS // n))
    sampled = [_perplexity(draws.choices(documents, k=n)) for _ in range(count)]
    known = [one for one in sampled if one is not None]
    if len(known) < 2:
        return None
    # Of 39 cuts the first and the last leave 2.5 % outside.
    cuts = quantiles(known, n=40, method="inclusive")
    return cuts[0], cuts[-1]
