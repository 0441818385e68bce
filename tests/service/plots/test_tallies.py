"""Counts of examples."""

from __future__ import annotations

from typing import Any

from assay.service.plots.tallies import MAX_CLASSES, MAX_POINTS, spent, tally, tally_shards

ROWS: dict[str, list[Any]] = {
    "label": [0, 0, 1, 1],
    "correct": [True, False, 1, 0],
    "prediction": [0, 1, 1, 2],
    "confidence": [0.05, 1.0, None, float("nan")],
}


def test_classes_pairs_and_bins_are_counted() -> None:
    found = tally(ROWS)
    assert found["classes"] == [{"label": 0, "n": 2, "correct": 1}, {"label": 1, "n": 2, "correct": 1}]
    assert [(one["label"], one["prediction"], one["count"]) for one in found["confusion"]] == [
        (0, 0, 1),
        (0, 1, 1),
        (1, 1, 1),
        (1, 2, 1),
    ]
    assert [(one["low"], one["n"], one["correct"]) for one in found["bins"]] == [(0.0, 1, 1), (14 / 15, 1, 0)]


def test_an_edge_belongs_to_the_bin_below_as_in_the_calibration_error() -> None:
    (one,) = tally({"label": [0], "correct": [1], "confidence": [1 / 15]})["bins"]
    assert (one["low"], one["high"]) == (0.0, 1 / 15)


def test_many_classes_have_no_matrix() -> None:
    labels = list(range(MAX_CLASSES + 1))
    found = tally({"label": labels, "correct": [1] * len(labels), "prediction": labels})
    assert "confusion" not in found
    assert len(found["classes"]) == MAX_CLASSES + 1


def test_columns_without_labels_count_nothing() -> None:
    assert tally({}) == tally({"label": ["a"], "correct": [1]}) == tally({"summed": [1]}) == {}


def test_shards_are_counted_together_by_what_all_have() -> None:
    parts = [{name: values[:2] for name, values in ROWS.items()}, {"label": [1, 1], "correct": [1, 0]}]
    assert tally_shards(parts)["classes"] == tally(ROWS)["classes"]
    assert "confusion" not in tally_shards(parts)
    assert tally_shards([]) == {}


def test_the_accuracy_left_falls_with_the_passes_that_each_example_gets() -> None:
    rows = {
        "correct": [False, False, False, True],
        "clean_correct": [False, True, True, True],
        "forward": [1, 2, 5, 9],
        "backward": [0, 1, 5, 7],
    }
    # One example is wrong from the start; b = 3, 10, 16.
    assert spent(rows) == [((1 + 3 + 3 + 3) / 4, 0.5), ((1 + 3 + 10 + 10) / 4, 0.25), (30 / 4, 0.25)]
    assert spent({name: rows[name] for name in ("correct", "forward", "backward")}) == []
    assert tally({"label": [0, 0, 0, 0], **rows})["spent"] == spent(rows)


def test_a_long_curve_is_thinned_and_keeps_its_end() -> None:
    n = 5000
    rows = {
        "correct": [False] * n,
        "clean_correct": [True] * n,
        "forward": list(range(1, n + 1)),
        "backward": [0] * n,
    }
    found = spent(rows)
    assert len(found) <= MAX_POINTS + 1
    assert found[-1] == ((n + 1) / 2, 0.0)
