"""What losses of documents come to, and how two language models differ on the same documents.

Perplexity is exp(sum of -log p over all words / number of words). Documents are drawn (Efron and Tibshirani
1993, "An Introduction to the Bootstrap", chapters 13 and 16), and each draw has both models' losses of a
document.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from statistics import quantiles
from typing import Any

from assay.service.contract.results import Metric
from assay.service.metrics.intervals import PairedDifference, difference_from

RESAMPLES = 2000
# A resample draws n documents; beyond this many draws there are fewer of them.
DRAWS = 20_000_000
FEWEST_RESAMPLES = 200
# Larger numbers are no JSON that everybody reads.
LARGEST_MEAN = math.log(1e300)

Document = tuple[float, int]
"""Sum of the words' -log p in nats, and how many words there are."""


def documents_of(columns: Mapping[str, Sequence[Any]]) -> list[tuple[float | None, int]]:
    """The documents in outcome columns; a loss that is not finite is None."""
    return list(zip(columns["nll"], columns["tokens"], strict=True))


def perplexity_of(documents: Sequence[Document]) -> float | None:
    """Perplexity of all words of some documents; None where there is no word, or it is no usual number."""
    tokens = sum(count for _, count in documents)
    if tokens == 0:
        return None
    mean = math.fsum(loss for loss, _ in documents) / tokens
    return math.exp(mean) if mean < LARGEST_MEAN else None


def resamples_of(n: int) -> int:
    """How often n documents are drawn."""
    return min(RESAMPLES, max(FEWEST_RESAMPLES, DRAWS // n))


def paired_difference(
    first: Sequence[Document], second: Sequence[Document], *, seed: str
) -> PairedDifference | None:
    """The second model's perplexity less the first one's, on the same documents.

    Args:
        first: One model's documents.
        second: The other's, in the same order.
        seed: Key of the draws; the same documents in any order give the same bits.

    Returns:
        With a percentile 95 % interval over documents; None where a perplexity has no value.
    """
    pairs = sorted(zip(first, second, strict=True))
    value, draws = _difference(pairs), random.Random(f"assay/bootstrap/{seed}")
    if value is None:
        return None
    sampled = [_difference(draws.choices(pairs, k=len(pairs))) for _ in range(resamples_of(len(pairs)))]
    known = sorted(one for one in sampled if one is not None)
    return difference_from(value, known) if known else None


def _difference(pairs: Sequence[tuple[Document, Document]]) -> float | None:
    one, other = (perplexity_of([pair[side] for pair in pairs]) for side in (0, 1))
    return None if one is None or other is None else other - one


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
