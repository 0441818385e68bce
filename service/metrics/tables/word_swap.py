"""Metrics of a language model on text with swapped words, from the losses of documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from assay.service.contract.results import Metric
from assay.service.metrics.paired import Pair, PairedMetrics, Rows
from assay.service.metrics.statistics.estimates import clustered_share
from assay.service.metrics.statistics.paired_estimates import Estimator, FirstOf, PairedEstimates, ratio_of
from assay.service.metrics.table import Context, Reasons, Summary, Units, columns_of
from assay.service.metrics.tables.perplexity import (
    UNDEFINED,
    Document,
    Perplexity,
    causal,
    documents,
    paired_perplexity,
    perplexity_metrics,
)

__all__ = ["WordSwap"]

# Metric to column: its share of the scored words.
SHARES = {"swapped_words": "swapped", "unknown_words": "unknown", "unknown_words_before": "unknown_before"}
PERPLEXITIES = ("perplexity", "perplexity_unswapped", "perplexity_unswapped_before")


class WordSwap(Perplexity):
    """Losses of documents with swapped words; `kept_nll` is the loss of the unswapped words."""

    name = "word_swap"
    columns = columns_of(
        "id nll tokens unknown swapped kept_nll kept_nll_before unknown_before eligible forward backward"
    )
    units: ClassVar[Units] = {**dict.fromkeys(PERPLEXITIES, "number"), **dict.fromkeys(SHARES, "proportion")}
    undefined: ClassVar[Reasons] = {
        **dict.fromkeys(PERPLEXITIES, UNDEFINED),
        **dict.fromkeys(SHARES, "no word was scored"),
    }

    def summarise(self, rows: Rows, context: Context) -> Summary:
        """Perplexities, which have no value for a model that sees later words, and shares of words."""
        return causal(word_swap_metrics(rows), context)

    def paired(self, pair: Pair) -> PairedMetrics:
        """Linearised tests over documents."""
        kept = {"perplexity_unswapped": "kept_nll", "perplexity_unswapped_before": "kept_nll_before"}
        perplexities = {metric: Estimator(_kept(name), paired_perplexity) for metric, name in kept.items()}
        shares = {metric: Estimator(_words(name), ratio_of, limit=1.0) for metric, name in SHARES.items()}
        return FirstOf(super().paired(pair), PairedEstimates(pair, perplexities | shares))


def word_swap_metrics(columns: Mapping[str, Sequence[Any]]) -> dict[str, Metric]:
    """Metrics of an evaluation.

    `perplexity`: over all words, the swapped ones as they are now; interval over documents, as for the next
    two. `perplexity_unswapped`: over the words that were not swapped, which have swapped ones before them.
    `perplexity_unswapped_before`: over the same words in the text as it was. `swapped_words`: share of the
    scored words that were swapped; markup and punctuation are not. `unknown_words`, `unknown_words_before`:
    share of the scored words that the model reads as `<unk>`, after the swap and before. Intervals of shares
    are Wilson's, for an effective number of words.
    """
    stayed = _stayed(columns)
    kept, before = ({"nll": columns[name], "tokens": stayed} for name in ("kept_nll", "kept_nll_before"))
    return {
        **perplexity_metrics(columns),
        "perplexity_unswapped": perplexity_metrics(kept)["perplexity"],
        "perplexity_unswapped_before": perplexity_metrics(before)["perplexity"],
        **{
            name: clustered_share(columns[column], columns["tokens"], higher_is_better=False)
            for name, column in SHARES.items()
        },
    }


def _stayed(rows: Rows) -> list[int]:
    return [tokens - swapped for tokens, swapped in zip(rows["tokens"], rows["swapped"], strict=True)]


def _kept(name: str) -> Callable[[Rows], list[Document | None]]:
    return lambda rows: documents(rows[name], _stayed(rows))


def _words(name: str) -> Callable[[Rows], list[tuple[int, int]]]:
    return lambda rows: list(zip(rows[name], rows["tokens"], strict=True))
