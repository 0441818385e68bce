from __future__ import annotations

from typing import Any

import pytest

from assay.service.cli.markdown import markdown, readable
from assay.service.contract.results import EvaluationResult, Metric, Provenance, Results, Unit, Warning
from tests.support.terminals import ESCAPES, Terminal


def metric(value: float | None, n: int = 100, method: Any = "wilson", unit: Unit = "proportion") -> Metric:
    low, high = (None, None) if value is None else (value - 0.05, value + 0.05)
    interval = {"ci_low": low, "ci_high": high, "ci_method": method}
    return Metric(value=value, n=n, **interval, higher_is_better=True, unit=unit)


def row(name: str, metrics: dict[str, Metric], data: str = "digits", **params: Any) -> EvaluationResult:
    return EvaluationResult(
        name=name, params=params, data={"name": data}, protocol="pixel", backend="native", metrics=metrics,
        warnings=[Warning(code="subset", message="some")] if data == "some" else [],
        seconds=1, forward_passes=1, backward_passes=0,
    )  # fmt: skip


def results(*rows: EvaluationResult) -> Results:
    provenance = Provenance(
        spec={}, seed=0, code={}, packages={"torch": "2.15"}, device={"name": "CPU", "dtype": "float32"},
        weights_sha256=None, data_sha256={}, times={"started_at": "2026-11-21T10:00:00Z"},
    )  # fmt: skip
    return Results(job="x", complete=True, evaluations=list(rows), provenance=provenance)


def both(top1: float | None) -> Results:
    clean, pgd = metric(0.9), metric(top1)
    return results(
        row("clean", {"top1": clean, "top5": clean}),
        row(
            "pgd",
            {"top1": pgd, "queries": metric(3, method="order_statistics", unit="count")},
            epsilon="2/255",
            steps=20,
        ),
    )


def test_a_row_for_each_job_and_a_column_for_each_metric() -> None:
    assert markdown({"a|b": both(0.5), "c": both(None)}).splitlines() == [
        "| job | clean: top1, % | pgd epsilon=2/255: top1, % | n |",
        "| --- | --- | --- | --- |",
        "| a\\|b | 90.0 [85.0, 95.0] | 50.0 [45.0, 55.0] | 100 |",
        "| c | 90.0 [85.0, 95.0] | - [-, -] | 100 |",
        "",
        "- clean: protocol=pixel data=digits",
        "- pgd: steps=20 protocol=pixel data=digits",
        "- 95 % intervals: wilson",
        "- measured on CPU, torch 2.15, float32; 2026-11-21",
    ]


def test_arithmetic_is_told_by_row_and_a_screening_where_it_ran() -> None:
    plain, rough = row("clean", {"top1": metric(0.9)}), row("pgd", {"top1": metric(0.9)})
    rough = rough.model_copy(update={"arithmetic": "bfloat16 first, then float32"})
    found = results(plain, rough)
    assert found.provenance is not None
    execution = {"dtype": "float32", "screening": "bfloat16"}
    found = found.model_copy(
        update={"provenance": found.provenance.model_copy(update={"spec": {"execution": execution}})}
    )
    lines = markdown({"a": found}).splitlines()
    assert "- computed in bfloat16 first, then float32: pgd" in lines
    assert lines[-1].startswith("- measured on CPU, torch 2.15, float32; "), "no row was screened"
    screened = rough.model_copy(update={"warnings": [Warning(code="screened", message="so")]})
    lines = markdown({"a": found.model_copy(update={"evaluations": [plain, screened]})}).splitlines()
    assert lines[-1].startswith("- measured on CPU, torch 2.15, float32, screening bfloat16; ")


def test_names_of_jobs_and_folders_are_no_markup() -> None:
    named = results(row("clean", {"top1": metric(0.9)}, data="some", folder="<b>_x_</b>"))
    text = markdown({"*a*|<i>b</i>": named, "c": both(0.5)})
    assert "| \\*a\\*\\|&lt;i&gt;b&lt;/i&gt; |" in text
    assert "- note subset: \\*a\\*\\|&lt;i&gt;b&lt;/i&gt;" in text
    assert "folder=&lt;b&gt;\\_x\\_&lt;/b&gt;" in text
    assert "<" not in text


def test_other_metrics_may_be_asked_for() -> None:
    text = markdown({"a": both(0.5)}, ["top5", "queries"])
    assert text.splitlines()[0] == "| job | clean: top5, % | pgd epsilon=2/255: queries | n |"
    assert markdown({"a": both(0.5)}, ["miou"]) == ""


def test_jobs_with_other_columns_have_a_table_of_their_own() -> None:
    maps = results(row("clean", {"miou": metric(0.4, 200, "bootstrap")}, data="some"))
    text = markdown({"a": both(0.5), "b": maps, "c": both(0.6)})
    first, second, notes = text.split("\n\n")
    assert [line.split(" |")[0] for line in first.splitlines()] == ["| job", "| ---", "| a", "| c"]
    assert second.splitlines()[0] == "| job | clean data=some: miou, % | n |"
    assert second.splitlines()[2] == "| b | 40.0 [35.0, 45.0] | 200 |"
    assert "- 95 % intervals: wilson, bootstrap" in notes
    assert "- note subset: b" in notes
    assert "- note subset: every job" in markdown({"b": maps})


def test_an_exact_count_is_whole_and_alone() -> None:
    counted = metric(28460.0, 1, "exact", "count")
    text = markdown({"a": results(row("efficiency", {"parameters": counted}))})
    assert text.splitlines()[2] == "| a | 28460 | 1 |"


def test_parts_that_were_measured_on_other_numbers_of_examples_say_so() -> None:
    text = markdown({"a": results(row("clean", {"top1": metric(1, 5)}), row("fgsm", {"top1": metric(1, 7)}))})
    assert text.splitlines()[2].endswith("| 5, 7 |")


def test_on_a_terminal_its_tables_and_notes_are_as_wide_as_that(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    note = "- a note \\*of\\* many words, which is longer than the terminal &amp; its columns"
    text = f"| arm | value |\n| --- | --- |\n| a\\|b | **1.0** |\n| c | 20 |\n\n{note}\n"
    assert readable(text) == text, "a pipe gets Markdown"
    with terminal:
        shown = ESCAPES.sub("", readable(text))
    assert shown.split("\n") == [
        "arm  value",
        "a|b    1.0",
        "c       20",
        "",
        "- a note *of* many words, which is",
        "  longer than the terminal & its columns",
        "",
    ]
