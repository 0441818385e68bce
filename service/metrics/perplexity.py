"""Perplexity from losses of documents, and the paired difference of two language models.

Perplexity is exp(sum of -log p over all words / number of words). Documents are drawn (Efron and Tibshirani
1993, "An Introduction to the Bootstrap", chapters 13 and 16), and each draw has both models' losses of a
document.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from assay.service.contract.results import Metric, Warning
from assay.service.metrics.estimates import Interval, bootstrapped, percentiles, resamples
from assay.service.metrics.intervals import PairedDifference, difference_from
from assay.service.metrics.paired import Difference, Pair, PairedMetrics, Reported, Rows
from assay.service.metrics.table import Context, OutcomeTable, Reasons, Summary, Units, columns_of

# Many JSON readers cannot parse larger numbers.
MAX_MEAN = math.log(1e300)
# Reason of a perplexity without a value.
UNDEFINED = "the loss of a document is not finite, it is too large, or no word was scored"

Document = tuple[float, int]
"""Sum of the words' -log p in nats, and how many words there are."""


class Perplexity(OutcomeTable):
    """Losses of documents; a row is a document."""

    name = "perplexity"
    columns = columns_of("id forward backward nll tokens unknown")
    units: ClassVar[Units] = {"perplexity": "number"}
    undefined: ClassVar[Reasons] = {"perplexity": UNDEFINED}

    def summarise(self, rows: Rows, context: Context) -> Summary:
        """Perplexity; it has no value for a model that sees later words."""
        return causal(perplexity_metrics(rows), context)

    def paired(self, pair: Pair) -> PairedMetrics:
        """A bootstrap over documents."""
        return PairedDocuments(pair)


def causal(metrics: dict[str, Metric], context: Context) -> Summary:
    """The metrics of a language model, without the perplexities where its shards found that it sees ahead.

    What was measured in their place is evidence of the warning `leaks_future`.

    Args:
        metrics: those named after `perplexity` are invalid for such a model.
        context: its evidence says whether it is one.
    """
    found = next((shard["leaks_future"] for shard in context.evidence if "leaks_future" in shard), None)
    if found is None:
        return Summary(metrics)
    names = [name for name in metrics if name.startswith("perplexity")]
    message = (
        f"the model sees later words: the losses of {found['words']} of {found['compared']} words changed"
        f" with the words after them. What was measured is no perplexity: {', '.join(names)} is invalid"
    )
    measured = {name: metrics[name].value for name in names}
    evidence = {**found, "metrics": names, "measured": measured}
    invalid = {"value": None, "ci_low": None, "ci_high": None}
    kept = {
        name: metric.model_copy(update=invalid) if name in names else metric
        for name, metric in metrics.items()
    }
    return Summary(kept, warnings=[Warning(code="leaks_future", message=message, evidence=evidence)])


class PairedDocuments:
    """Two models' losses of the same documents."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair

    def difference(self, metric: str, reported: Reported) -> Difference | None:
        """As `PairedMetrics`; of the perplexity of all words."""
        if metric != "perplexity":
            return None
        pair, common = self._pair, []
        for rows, columns, value in zip(pair.rows, pair.columns, reported, strict=True):
            documents = documents_of(columns)
            known = [(loss, count) for loss, count in documents if loss is not None]
            found = perplexity_of(known) if len(known) == len(documents) else None
            if found is None or value is None or not math.isclose(found, value, rel_tol=1e-9):
                return None
            common.append([known[rows[example]] for example in pair.ids])
        difference = paired_difference(common[0], common[1], seed=pair.seed)
        return None if difference is None else pair.bootstrap(difference, resamples(len(pair.ids)))


def documents_of(columns: Mapping[str, Sequence[Any]]) -> list[tuple[float | None, int]]:
    """The documents in outcome columns; a loss that is not finite is None."""
    return list(zip(columns["nll"], columns["tokens"], strict=True))


def perplexity_of(documents: Sequence[Document]) -> float | None:
    """Perplexity of all words of some documents; None without words, or beyond `MAX_MEAN`."""
    tokens = sum(count for _, count in documents)
    if tokens == 0:
        return None
    mean = math.fsum(loss for loss, _ in documents) / tokens
    return math.exp(mean) if mean < MAX_MEAN else None


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
    sampled = [_difference(draws.choices(pairs, k=len(pairs))) for _ in range(resamples(len(pairs)))]
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
    interval = _interval(documents) if value is not None else None
    return {"perplexity": bootstrapped(value, interval, len(losses), higher_is_better=False)}


def _interval(documents: Sequence[Document]) -> Interval | None:
    draws, n = random.Random("metric/perplexity"), len(documents)
    sampled = [perplexity_of(draws.choices(documents, k=n)) for _ in range(resamples(n))]
    known = [one for one in sampled if one is not None]
    return percentiles(known) if len(known) > 1 else None
