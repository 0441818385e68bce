"""Tables by a parameter: attacks stay apart, equal values are one, and rows ascend."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from assay.service.contract.results import Metric
from assay.service.reports.tables import pivot
from assay.service.reports.tidy import TidyRow


def row(attack: str, value: float, **params: Any) -> TidyRow:
    metric = Metric(
        value=value, n=100, ci_low=value - 0.01, ci_high=value + 0.01, ci_method="wilson",
        higher_is_better=True, unit="proportion",
    )  # fmt: skip
    return TidyRow(
        job="job", name="name", model="vit", weights_sha256=None, seed=0, data="digits", attack=attack,
        params=params, protocol="pixel", metric_name="top1", part="", metric=metric,
        key=f"{attack} {params}", first=True,
    )  # fmt: skip


def test_rows_by_epsilon_ascend_and_two_norms_have_columns_of_their_own() -> None:
    rows = [
        row("pgd", 0.3, epsilon="8/255", norm="Linf"),
        row("pgd", 0.12, epsilon=0.5, norm="L2"),
        row("pgd", 0.6, epsilon="2/255", norm="Linf"),
        row("pgd", 0.9, epsilon=0, norm="Linf"),
    ]
    table = pivot(rows, by=("epsilon", "model"))
    assert [name for name, _ in table.rows] == ["0.0", "2/255", "8/255", "0.5"]
    assert table.header == ["epsilon", "vit, pgd norm=Linf", "vit, pgd norm=L2"]
    cells = {name: [cell and cell.value for cell in cells] for name, cells in table.rows}
    assert cells["8/255"] == ["30.0 %", None]
    assert cells["0.5"] == [None, "12.0 %"]


def test_one_value_of_epsilon_in_three_forms_is_one_row() -> None:
    rows = [
        row("pgd", 0.3, epsilon="8/255"),
        row("fgsm", 0.4, epsilon=8 / 255),
        row("spsa", 0.5, epsilon="16/510"),
    ]
    table = pivot(rows, by=("epsilon", "attack"))
    assert [name for name, _ in table.rows] == ["8/255"]
    assert table.header == ["epsilon", "pgd", "fgsm", "spsa"]


def test_rows_without_the_parameter_come_first_and_words_keep_their_order() -> None:
    rows = [row("pgd", 0.3, epsilon="8/255", norm="Linf"), row("clean", 0.9)]
    assert [name for name, _ in pivot(rows, by=("epsilon", "model")).rows] == ["-", "8/255"]
    assert [name for name, _ in pivot(rows, by=("norm", "model")).rows] == ["Linf", "-"]


def test_columns_stand_in_the_order_of_the_jobs() -> None:
    """Rows are grouped by strength, which must not move the jobs that a reader asked for in an order."""
    rows = [
        replace(row("pgd", value, epsilon="8/255"), job=job, name=job)
        for job, value in (("first", 0.9), ("second", 0.1))
    ]
    table = pivot(rows, by=("attack", "name"), counted=[("second", rows[1].key)])
    assert table.header[1:] == ["first", "second"]


def test_a_report_has_attacks_by_strength_and_names_the_worst_case() -> None:
    """Defaults are in the spec below; steps are effort, which a reader asks for first."""
    rows = [
        row("uniform_noise", 0.1, epsilon="8/255"),
        row("fgsm", 0.3, epsilon="8/255"),
        row("fgsm", 0.7, epsilon="4/255"),
        row("pgd", 0.6, epsilon="4/255", steps=10, backend="native", random_start=True),
        row("pgd", 0.3, epsilon="8/255", steps=10, backend="native", random_start=True),
        row("clean", 0.9),
    ]
    table = pivot(rows, counted=[("job", rows[4].key)])
    assert [name for name, _ in table.rows] == [
        "clean", "pgd epsilon=8/255", "pgd epsilon=4/255", "fgsm epsilon=8/255", "fgsm epsilon=4/255",
        "uniform_noise epsilon=8/255",
    ]  # fmt: skip
    assert [*table.counted] == ["pgd epsilon=8/255"]
    assert table.notes[0] == "worst case: pgd epsilon=8/255"
    assert "pgd: steps=10" in table.notes
    plain = pivot(rows)
    assert plain.rows[0][0] == "uniform_noise epsilon=8/255"
    assert "pgd: steps=10 backend=native random_start=true" in plain.notes


def test_the_worst_cases_of_several_jobs_are_told_by_job() -> None:
    """The worst case of a job is a milder row of another, which must not seem to be its worst case."""
    rows = [
        replace(row("pgd", value, epsilon=epsilon), job=job, name=job)
        for job in ("first", "second")
        for value, epsilon in ((0.6, "2/255"), (0.2, "4/255"))
    ]
    counted = [("first", rows[1].key), ("second", rows[2].key)]
    table = pivot(rows, by=("attack", "name"), counted=counted)
    assert table.notes[0] == "worst case: pgd epsilon=4/255 (first), pgd epsilon=2/255 (second)"
    assert not table.counted
    same = pivot(rows, by=("attack", "name"), counted=[counted[0], ("second", rows[3].key)])
    assert [*same.counted] == ["pgd epsilon=4/255"]
    assert same.notes[0] == "worst case: pgd epsilon=4/255"


def test_a_row_without_any_value_is_named_below() -> None:
    kept = row("pgd", 0.3, epsilon="8/255")
    gone = row("swap", 0.3, epsilon="8/255")
    gone = replace(gone, metric=gone.metric.model_copy(update={"value": None}))
    table = pivot([kept, gone])
    assert [name for name, _ in table.rows] == ["pgd epsilon=8/255"]
    assert table.notes[-1] == "without a value: swap epsilon=8/255"
    assert not any("without a value" in note for note in pivot([kept]).notes)
