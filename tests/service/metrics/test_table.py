"""Every outcome table: its metrics have units, and reasons where they may have no value."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.catalog.catalog import load
from assay.service.catalog.component import EVALUATIONS
from assay.service.contract.results import EvaluationResult
from assay.service.metrics.paired import Pair
from assay.service.metrics.registry import TABLES
from assay.service.metrics.table import Column, Context, OutcomeTable, as_csv, joined, with_units
from assay.service.metrics.tables.eigenvector_check import METRICS

Rows = dict[str, list[Any]]
RATIOS = ("miou", "mean_accuracy", "pixel_accuracy")
CELLS = {"corruptions": ["fog", "snow"], "severities": [1]}
ANSWERS: Rows = {
    "id": ["a", "b"], "label": [0, 1], "prediction": [0, 0], "correct": [False, False],
    "correct5": [True, True], "clean_correct": [False, False], "loss": [0.5, None],
    "forward": [1, 1], "backward": [0, 0],
}  # fmt: skip
NORMS: Rows = {"linf": [0.0, 0.0], "l2": [0.0, 0.0], "queries": [0, 0], "correct8": [False, False]}
PIXELS: Rows = {"intersection": [[0, 0]] * 2, "target": [[0, 0]] * 2, "predicted": [[0, 0]] * 2}
CANDIDATES: Rows = {name: [[0, 0]] * 2 for name in ("clean_intersection", "clean_predicted")}
LOSSES: Rows = {"nll": [0.0, 0.0], "tokens": [0, 0], "unknown": [0, 0]}
SWAPS: Rows = {
    name: [0, 0] for name in ("swapped", "kept_nll", "kept_nll_before", "unknown_before", "eligible")
}
PROMPTS: Rows = {
    "nll": [None, 1.0], "nll_before": [2.0, None], "tokens": [2, 2], "hit": [False, True],
    "hit_before": [False, False], "swapped": [1, 0], "words": [4, 4], "eligible": [3, 0], "queries": [5, 1],
}  # fmt: skip
COUNTED: Rows = {
    **{name: [0, 1] for name in ("skipped", "elements", "undefined")},
    "cosines": [[1] * 20] * 2,
    "spreads": [[1] * 48] * 2,
}
CHECKED: Rows = {**{name: [[None], [1.0]] for name in METRICS.values()}, **COUNTED}
CONTROLS: Rows = {
    f"{control}_{name}": values
    for control in ("random", "permuted")
    for name, values in {**{name: [None, 1.0] for name in METRICS.values()}, **COUNTED}.items()
}
PROJECTED: Rows = {
    "log_phi": [[None], [0.0]], "output": [[1.0]] * 2, "negative": [[0]] * 2, "terms": [[4]] * 2,
}  # fmt: skip
PURSUED: Rows = {
    **{name: [[0.0, 0.0]] * 2 for name in ("nonzero", "nonzero_noise", "auroc_unplanted")},
    **{name: [[0.5], [0.5]] for name in ("keys_auroc_unplanted", "keys_auroc_noise")},
    **{name: [[0.5, None], [0.5, 1.0]] for name in ("sparse_norm", "residual", "effective_rank")},
    "auroc_noise": [[0.5, None]] * 2, "keys_effective_rank": [[None], [1.0]], "curve": [[None] * 17] * 2,
    **{
        f"correct_{arm}_{kind}": [True, False]
        for arm in ("model", "no_sparse") for kind in ("clean", "noise")
    },
}  # fmt: skip
FOUND: dict[str, Any] = {
    "batch_size": 4, "parameters": 100, "model_bytes": 1000,
    "test_flops": 50.0, "train_flops": 150.0, "test_bytes": 400, "train_bytes": 1200,
}  # fmt: skip
COUNTS = [
    f"{side}{kind}_{what}"
    for side in ("", "softmax_")
    for kind in ("test", "train")
    for what in ("flops", "bytes")
]
COST = {
    "mechanism": "performer",
    "refused": {},
    "counted": [{"length": 8, **dict.fromkeys(COUNTS, 2.0)}],
}
# By table: rows that leave as many metrics as possible without a value, and these metrics.
UNDEFINED: dict[str, tuple[Rows, Context, set[str]]] = {
    "anomaly": (
        {"anomaly": [True, True], "confidence": [0.5, 0.5], "prediction": [0, 1]}, Context(), {"aupr"}
    ),
    "attack": (
        NORMS, Context(), {"attack_success_rate", "median_linf", "median_l2"}
    ),
    "attacked_segmentation": (
        PIXELS | CANDIDATES | {"worst": ["clean"] * 2}, Context(), {*RATIOS}
    ),
    "attention_spectrum": (
        {"curve": [[0.0, None], [0.0, 1.0]], "tokens": [[4]] * 2,
         **{name: [[None], [1.0]] for name in ("largest", "rank_90", "effective_rank")}},
        Context(evidence=[{"layers": [0]}]),
        {"explained_by_largest", "rank_90", "rank_90_share", "effective_rank"},
    ),
    "attention_cost": (
        {f"{side}{kind}_seconds": [0.1, 0.2] for side in ("", "softmax_") for kind in ("test", "train")},
        Context(evidence=[COST], device={"type": "cpu", "name": "a processor"}),
        {"time_growth", "memory_growth"},
    ),
    "calibration": (
        {"confidence": [0.5, None]}, Context(), {"ece", "rms_calibration_error", "aurra"}
    ),
    "classification": ({}, Context(), set()),
    "corrupted_classification": ({"corrupted": ["01", "11"]}, Context(params=CELLS), set()),
    "corrupted_segmentation": (
        PIXELS | {"corrupted_pixels": [";", ";"]}, Context(params=CELLS),
        {*RATIOS, *(f"corrupted_{name}" for name in RATIOS)},
    ),
    "efficiency": (
        {"test_seconds": [0.1, 0.2], "train_seconds": [0.3, 0.4]},
        Context(evidence=[FOUND], device={"type": "cpu", "name": "a processor"}), set(),
    ),
    "eigenvector_check": (
        CHECKED | CONTROLS, Context(evidence=[{"layers": [0]}]), {*METRICS} ,
    ),
    "forced_continuation": (
        PROMPTS, Context(), {"target_perplexity", "target_perplexity_before"}
    ),
    "head_distance": (
        {name: [[None], [1.0]] for name in ("distance", "squared_distance")},
        Context(evidence=[{"layers": [0]}]),
        {"head_distance", "head_distance_std"},
    ),
    "instability": (
        {"score": [None, 1.0], "softmax_score": [1.0, None]},
        Context(evidence=[{"mechanisms": ["performer"]}]),
        {"instability_ratio", "instability", "softmax_instability"},
    ),
    "perplexity": (LOSSES, Context(), {"perplexity"}),
    "projection_loss": (
        PROJECTED, Context(params={"form": "released"}, evidence=[{"layers": [0]}]), {"log_projection_loss"}
    ),
    "pursuit_check": (
        PURSUED, Context(evidence=[{"layers": [0], "iterations": [2], "arms": ["no_sparse"]}]),
        {"sparse_norm", "residual", "effective_rank", "keys_effective_rank", "auroc_noise"},
    ),
    "regression": (
        {"target": [1.0, 2.0], "prediction": [None, 2.0], "squared_error": [None, 0.0]},
        Context(), {"rmse", "mae"},
    ),
    "returns": (
        {"return": [1.0, None], "normalized": [0.5, None], "length": [3, 0], "action_change": [0.1, None]},
        Context(), {"return", "normalized_return", "action_change"},
    ),
    "segmentation": (PIXELS, Context(), {*RATIOS}),
    "smoothed": (
        {"smoothed_correct": [True, False], "prediction": [[0], [-1]], "radius": [[0.5], [0.0]],
         "votes": [[99], [50]], "draws": [100, 100]},
        Context(params={"sigmas": [0.25], "radii": [0.0, 0.25]}), set(),
    ),
    "spectral_error": (
        {"tokens": [9, 9]}
        | {f"skyformer_{kind}": [[None, 1.0]] * 2 for kind in ("error", "relative_error")},
        Context(params={"features": [4, 16]}, evidence=[{"layers": [0]}]),
        {"skyformer_error_4", "skyformer_relative_error_4"},
    ),
    "stored_corruptions": ({"corrupted": ["01", "11"]}, Context(params=CELLS), set()),
    "text_attack": (
        {"status": ["skipped"] * 2, "queries": [0, 0], "words": [1, 1], "changed": [0, 0]}, Context(),
        {"attack_success_rate", "queries", "words_changed"},
    ),
    "verified": (
        {"verified": [False, False], "lower_margin": [None, 1.0]}, Context(), {"lower_margin"}
    ),
    "word_swap": (
        LOSSES | SWAPS, Context(),
        {"perplexity", "perplexity_unswapped", "perplexity_unswapped_before",
         "swapped_words", "unknown_words", "unknown_words_before"},
    ),
}  # fmt: skip


def rows_of(name: str) -> Rows:
    """The rows, in the order of the table's columns."""
    shard, _, _ = UNDEFINED[name]
    return joined(TABLES[name].columns, [ANSWERS | shard])


def test_every_evaluation_and_attack_states_a_table_for_each_of_its_tasks() -> None:
    used = set()
    for kind in EVALUATIONS:
        for component in load().list(kind):
            used |= {component.table_for([task]) for task in component.tasks}
    assert used == TABLES.keys()


@pytest.mark.parametrize("name", sorted(TABLES))
def test_metrics_have_units_and_those_without_a_value_a_reason(name: str) -> None:
    table, (_, context, undefined) = TABLES[name], UNDEFINED[name]
    assert table.name == name
    assert isinstance(table, OutcomeTable)
    summary = table.summarise(rows_of(name), context)
    parts = [summary.metrics, *(part.metrics for part in summary.breakdown)]
    assert {metric for part in parts for metric in part} <= table.units.keys()
    missing = {metric for metric, found in summary.metrics.items() if found.value is None}
    assert missing == undefined
    assert missing <= table.undefined.keys() <= table.units.keys()


@pytest.mark.parametrize("name", sorted(TABLES))
def test_a_table_without_its_columns_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="a shard has no column"):
        joined(TABLES[name].columns, [{"id": ["a"]}])


def test_units_are_written_into_every_metric_of_a_result() -> None:
    table = TABLES["stored_corruptions"]
    _, context, _ = UNDEFINED["stored_corruptions"]
    summary = table.summarise(rows_of("stored_corruptions"), context)
    result = EvaluationResult(
        name="corruptions", params=CELLS, data={"name": "x"}, protocol="pixel", backend="native",
        metrics=summary.metrics, breakdown=list(summary.breakdown),
        seconds=1, forward_passes=1, backward_passes=0,
    )  # fmt: skip
    found = with_units(result, table)
    parts = [found.metrics, *(part.metrics for part in found.breakdown)]
    assert {metric.unit for part in parts for metric in part.values()} == {"proportion"}
    assert {metric.unit for metric in result.metrics.values()} == {None}


def test_columns_of_candidates_keep_the_order_of_the_first_shard() -> None:
    shard = {"id": ["b"], "x_intersection": [[1]], "y_intersection": [[0]], "x_predicted": [[1]], "z": [1]}
    columns = (
        Column("id"),
        Column("counts", pattern=".+_(intersection|predicted)"),
        Column("w", optional=True),
    )
    found = joined(columns, [shard, {**dict(reversed(shard.items())), "id": ["a"]}])
    assert list(found) == ["id", "x_intersection", "y_intersection", "x_predicted"]
    assert as_csv(found).splitlines()[:2] == ["id,x_intersection,y_intersection,x_predicted", "a,1,0,1"]


@pytest.mark.parametrize("name", sorted(TABLES))
def test_a_metric_that_the_rows_do_not_give_has_no_paired_difference(name: str) -> None:
    table, rows = TABLES[name], rows_of(name)
    paired = table.paired(Pair("some", rows, rows))
    assert paired is None or paired.difference("no_such_metric", (0.5, 0.5)) is None
