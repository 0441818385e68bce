"""Metrics of the search for prompts after which a language model says a target, from its documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from assay.service.contract.results import Metric
from assay.service.metrics.paired import Pair, PairedMetrics, PairedShares, Rows
from assay.service.metrics.statistics.estimates import bounded_mean, mean, proportion
from assay.service.metrics.statistics.paired_estimates import Estimator, FirstOf, PairedEstimates, column_of
from assay.service.metrics.table import Context, OutcomeTable, Reasons, Summary, Units, columns_of
from assay.service.metrics.tables.perplexity import (
    UNDEFINED,
    causal,
    documents_of,
    paired_perplexity,
    perplexity_metrics,
)

__all__ = ["ForcedContinuation"]

HITS = {"target_hit_rate": "hit", "target_hit_rate_before": "hit_before"}  # Metric to column.
PERPLEXITIES = {"target_perplexity": "nll", "target_perplexity_before": "nll_before"}


class ForcedContinuation(OutcomeTable):
    """Losses of a target of `tokens` words after prompts of `words`, with `eligible` ones swapped or not."""

    name = "forced_continuation"
    columns = columns_of(
        "id nll nll_before tokens hit hit_before swapped words eligible queries forward backward"
    )
    units: ClassVar[Units] = {
        **dict.fromkeys((*HITS, "words_changed"), "proportion"),
        **dict.fromkeys(PERPLEXITIES, "number"),
        "queries": "count",
    }
    undefined: ClassVar[Reasons] = dict.fromkeys(PERPLEXITIES, UNDEFINED)

    def summarise(self, rows: Rows, context: Context) -> Summary:
        """Hits and perplexities, which have no value for a model that sees later words, and the cost."""
        return causal(forced_continuation_metrics(rows), context, [*HITS, *PERPLEXITIES])

    def paired(self, pair: Pair) -> PairedMetrics:
        """McNemar's test of the hits, tests of means over documents."""
        estimators = {
            metric: Estimator(documents_of(name), paired_perplexity) for metric, name in PERPLEXITIES.items()
        }
        estimators["words_changed"] = Estimator(changed, largest=1.0)
        estimators["queries"] = Estimator(column_of("queries"))
        return FirstOf(PairedShares(pair, HITS), PairedEstimates(pair, estimators))


def forced_continuation_metrics(columns: Mapping[str, Sequence[Any]]) -> dict[str, Metric]:
    """Metrics of an evaluation.

    `target_hit_rate`: share of the documents in which greedy decoding after the prompt says the target
    exactly; `target_hit_rate_before` the same with the unchanged prompt. `target_perplexity`: exp of the
    mean over documents and words of -log p(word of the target), at least 1, and `target_perplexity_before`.
    `words_changed`: mean share of the prompt's words that differ. `queries`: mean number of prompts put to
    the model by the search, the unchanged prompt included.
    """
    n = len(columns["hit"])
    return {
        **{
            metric: proportion(sum(columns[name]), n, higher_is_better=False) for metric, name in HITS.items()
        },
        **{
            metric: perplexity_metrics({"nll": columns[name], "tokens": columns["tokens"]})[
                "perplexity"
            ].model_copy(update={"higher_is_better": True})
            for metric, name in PERPLEXITIES.items()
        },
        "words_changed": bounded_mean(changed(columns)),
        "queries": mean(columns["queries"], "queries", lowest=0.0),
    }


def changed(rows: Rows) -> list[float]:
    """Of each prompt its share of words that differ."""
    return [swapped / words for swapped, words in zip(rows["swapped"], rows["words"], strict=True)]
