"""Perplexity from losses of documents, and the paired difference of two language models.

Perplexity is exp(sum of -log p over all words / number of words), a smooth function of two means over
documents. A model's interval follows from the interval of the mean loss, a ratio of sums; tests and intervals
of two models are of each document's influence (`paired_estimates.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from assay.service.contract.findings.evidence import FutureLeak
from assay.service.contract.results import Metric, Warning
from assay.service.metrics.paired import Pair, PairedMetrics, Rows
from assay.service.metrics.statistics.estimates import measured
from assay.service.metrics.statistics.intervals import NO_BOUNDS, Bounds, ratio_bounds
from assay.service.metrics.statistics.paired_estimates import Estimator, Linear, PairedEstimates, ratio_of
from assay.service.metrics.table import Context, OutcomeTable, Reasons, Summary, Units, columns_of

__all__ = ["Perplexity"]

# Of models with a tokenizer of their own: losses of tokens, divided by the words between white space.
PER_WORD = "perplexity_per_word"
MAX_MEAN = math.log(1e300)  # Many JSON readers cannot parse larger numbers.
# Reason of a perplexity without a value.
UNDEFINED = "the loss of a document is not finite, it is too large, or no word was scored"

Document = tuple[float, int]
"""Sum of the words' -log p in nats, and how many words there are."""


class Perplexity(OutcomeTable):
    """Losses of documents; a row is a document."""

    name = "perplexity"
    columns = columns_of("id forward backward nll tokens unknown", optional="words")
    units: ClassVar[Units] = {"perplexity": "number", PER_WORD: "number"}
    undefined: ClassVar[Reasons] = {"perplexity": UNDEFINED, PER_WORD: UNDEFINED}

    def summarise(self, rows: Rows, context: Context) -> Summary:
        """Perplexity; it has no value for a model that sees later words."""
        metrics = perplexity_metrics(rows)
        if "words" in rows:
            metrics[PER_WORD] = perplexity_metrics({**rows, "tokens": rows["words"]})["perplexity"]
        return causal(metrics, context)

    def paired(self, pair: Pair) -> PairedMetrics:
        """The linearised test over documents."""
        found = {"perplexity": Estimator(documents_of("nll"), paired_perplexity)}
        if all("words" in rows for rows in pair.columns):
            found[PER_WORD] = Estimator(documents_of("nll", words="words"), paired_perplexity)
        return PairedEstimates(pair, found)


def causal(metrics: dict[str, Metric], context: Context, others: Sequence[str] = ()) -> Summary:
    """The metrics of a language model, without the perplexities where its shards found that it sees ahead."""
    # What was measured in their place is evidence of the warning `leaks_future`.
    found = next((shard["leaks_future"] for shard in context.evidence if "leaks_future" in shard), None)
    if found is None:
        return Summary(metrics)
    names = [name for name in metrics if name.startswith("perplexity") or name in others]
    message = (
        f"the model sees later words{_how(found)}. What was measured is no perplexity:"
        f" {', '.join(names)} is invalid"
    )
    measured = {name: metrics[name].value for name in names}
    evidence = {**found, "metrics": names, "measured": measured}
    invalid = {"value": None, "ci_low": None, "ci_high": None}
    kept = {
        name: metric.model_copy(update=invalid) if name in names else metric
        for name, metric in metrics.items()
    }
    return Summary(kept, warnings=[Warning(code="leaks_future", message=message, evidence=evidence)])


def _how(found: FutureLeak) -> str:
    """What a model sees later words by: its definition, what the probe found, or both."""
    stated = found.get("by_construction", ())
    said = f" by construction: {' and '.join(stated)} looks at all tokens of a window" if stated else ""
    changed = (
        f": the losses of {found['words']} of {found['compared']} words changed with the words after them"
    )
    return said + (changed.replace(":", ";", 1) if said else changed) * bool(found["words"])


def documents_of(losses: str, *, words: str = "tokens") -> Callable[[Rows], list[Document | None]]:
    """The documents by two outcome columns; None for a document with a loss that is not finite."""
    return lambda rows: documents(rows[losses], rows[words])


def documents(losses: Sequence[float | None], words: Sequence[int]) -> list[Document | None]:
    """Documents from their losses and numbers of words; None where the loss is None."""
    return [None if loss is None else (loss, count) for loss, count in zip(losses, words, strict=True)]


def perplexity_of(documents: Sequence[Document]) -> float | None:
    """Perplexity of all words of some documents; None without words, or beyond `MAX_MEAN`."""
    tokens = sum(count for _, count in documents)
    if tokens == 0:
        return None
    mean = math.fsum(loss for loss, _ in documents) / tokens
    return math.exp(mean) if mean < MAX_MEAN else None


def paired_perplexity(documents: Sequence[Document]) -> Linear | None:
    """Perplexity and the term of each document, p (1 + influence on log p); None where it has no value."""
    value, loss = perplexity_of(documents), ratio_of(documents)
    if value is None or loss is None:
        return None
    return Linear(value, [value * (1 + term - loss.value) for term in loss.terms])


def perplexity_metrics(columns: Mapping[str, Sequence[Any]]) -> dict[str, Metric]:
    """`perplexity`, at least 1, lower is better; `n` counts documents.

    The columns are `nll` in nats (None where it is not finite) and `tokens`, each (n,), sorted by document.
    The value is None where a loss is not finite, or where no word was scored.
    """
    losses, tokens = columns["nll"], columns["tokens"]
    documents: list[Document] = [] if None in losses else list(zip(losses, tokens, strict=True))
    value = perplexity_of(documents)
    bounds = _bounds(documents) if value is not None else NO_BOUNDS
    return {"perplexity": measured(value, bounds, len(losses), higher_is_better=False)}


def _bounds(documents: Sequence[Document]) -> Bounds:
    bounds = ratio_bounds(documents, seed="metric/perplexity")
    if bounds.low is None or bounds.high is None:
        return bounds
    if bounds.high >= MAX_MEAN:  # The upper end may be too large where the perplexity is not.
        return NO_BOUNDS
    return Bounds(math.exp(max(0.0, bounds.low)), math.exp(bounds.high), bounds.method)
