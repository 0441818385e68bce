"""Loss and accuracy of a training: points, lines and words, from logs that a worker wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import pytest

from assay.service.contract.results import Results
from assay.service.plots.series import LabelledResults
from assay.service.plots.theme import Vega
from assay.service.plots.training import MAX_POINTS, training

EMPTY = Results(job="01", complete=True, evaluations=[], provenance=None)


def job(records: Sequence[Mapping[str, Any]], label: str = "a job") -> LabelledResults:
    return LabelledResults(label, EMPTY, {}, records)


def drawn(*jobs: LabelledResults) -> Vega:
    found = training(jobs)
    assert found is not None
    return found


def panels(spec: Vega) -> list[Vega]:
    found: list[Vega] = spec.get("hconcat", [spec])
    return found


def lines(panel: Vega) -> dict[str, list[tuple[int, float]]]:
    found: dict[str, list[tuple[int, float]]] = {}
    for row in panel["data"]["values"]:
        found.setdefault(row["series"], []).append((row["epoch"], row["value"]))
    return found


def test_losses_stand_above_shares_with_a_line_for_each_set() -> None:
    records = [
        {"epoch": 1, "loss": 2.0, "accuracy": 0.3, "judged_loss": 2.5, "judged_accuracy": 0.25, "lr": 0.1},
        {"epoch": 2, "loss": 1.0, "accuracy": 0.6, "judged_loss": 1.5, "judged_accuracy": 0.5, "lr": 0.01},
    ]
    losses, shares = panels(drawn(job(records)))
    assert lines(losses) == {"training": [(1, 2.0), (2, 1.0)], "validation": [(1, 2.5), (2, 1.5)]}
    alone = panels(drawn(job([{"epoch": 1, "loss": 2.0}])))[0]
    legends = [
        [layer["encoding"]["color"].get("legend", "shown") for layer in one["layer"]]
        for one in (losses, alone)
    ]
    assert set(legends[0]) == {"shown"}
    assert set(legends[1]) == {None}, "a single line needs no name"
    assert lines(shares) == {"training": [(1, 0.3), (2, 0.6)], "validation": [(1, 0.25), (2, 0.5)]}


def test_the_words_have_the_last_numbers() -> None:
    records = [{"epoch": 1, "loss": 2.0, "accuracy": 0.3}, {"epoch": 2, "loss": 0.12345, "accuracy": 0.625}]
    text = drawn(job(records))["description"]
    assert text == "Training: 2 epochs; at the end loss 0.123, training accuracy 62.5 %."


def test_several_jobs_are_told_apart_also_under_one_name() -> None:
    spec = drawn(job([{"epoch": 1, "loss": 2.0}], "one"), job([{"epoch": 1, "loss": 1.0}], "one"))
    (panel,) = panels(spec)
    found = lines(panel)
    assert len(found) == 2
    assert all(name.endswith(": training") for name in found)


@pytest.mark.parametrize("value", [None, "0.5", [1.0], float("nan"), float("inf"), float("-inf")])
def test_what_is_no_finite_number_is_left_out(value: object) -> None:
    """The logs of a diverging training have them, and JSON has no such numbers."""
    (panel,) = panels(drawn(job([{"epoch": 1, "loss": 2.0, "accuracy": value}, {"epoch": 2, "loss": value}])))
    assert lines(panel) == {"training": [(1, 2.0)]}
    assert training([job([{"epoch": 1, "loss": value, "accuracy": value}])]) is None


def test_without_a_log_there_is_no_plot() -> None:
    assert training([job([])]) is None
    assert training([job([{"epoch": 1}])]) is None


def test_shares_alone_have_one_panel() -> None:
    spec = drawn(job([{"epoch": 1, "adversarial_accuracy": 0.5}]))
    (panel,) = panels(spec)
    assert lines(panel) == {"adversarial training": [(1, 0.5)]}
    assert spec["description"].endswith("at the end adversarial training accuracy 50.0 %.")


@pytest.mark.parametrize("epochs", [MAX_POINTS, MAX_POINTS + 1, 7 * MAX_POINTS + 3])
def test_a_long_log_is_thinned_and_keeps_its_last_epoch(epochs: int) -> None:
    spec = drawn(job([{"epoch": epoch, "loss": 1 / epoch} for epoch in range(1, epochs + 1)]))
    (found,) = lines(panels(spec)[0]).values()
    assert len(found) <= MAX_POINTS
    assert len(found) >= MAX_POINTS / 2
    assert found[-1] == (epochs, 1 / epochs)
    steps = {later[0] - earlier[0] for earlier, later in pairwise(found)}
    assert len(steps) == 1, "evenly"
    assert f"{epochs} epochs" in spec["description"]


def test_hostile_names_and_numbers_are_plain_json() -> None:
    name = "datum.value']); alert(1); <script>\x00\u202e"
    records = [{"epoch": 1, "loss": 1.7e308, "accuracy": -1e-308, name: "x"}]
    spec = drawn(job(records, name), job(records, name))
    text = json.dumps(spec, allow_nan=False, ensure_ascii=False)
    assert "\x00" not in text
    assert "\u202e" not in text
