"""What a terminal shows, on a pty, and what a pipe gets."""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
from typing import Any

import pytest

from assay.service.cli import evaluate, main, output
from assay.service.client import AssayClient
from assay.service.fitted_text import fitted, say
from tests.support.terminals import ESCAPES, Make, Terminal, too_wide

WORD = "untrained_weights"
HEADER, ROWS = ("ID", "STATE", "VALUE", "NAME"), [("a", "failed", "50.0 %", "x y"), ("b", "running", "3", "")]
PLAIN = "ID  STATE     VALUE  NAME\na   failed   50.0 %  x y\nb   running       3"


def test_a_table_has_colours_on_a_terminal_and_the_same_text(terminal: Terminal) -> None:
    with terminal:
        text = output.table(HEADER, ROWS)
    assert "\x1b[1;31mfailed" in text
    assert "\x1b[36mrunning" in text
    assert ESCAPES.sub("", text).split() == PLAIN.split()


@pytest.mark.parametrize("variable", [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_without_colours_it_is_plain(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, variable: tuple[str, str]
) -> None:
    monkeypatch.setenv(*variable)
    with terminal:
        assert output.table(HEADER, ROWS) == PLAIN


def test_without_rich_it_is_plain(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    with terminal:
        assert output.table(HEADER, ROWS) == PLAIN
        assert output.coloured("failed") == "failed"


def test_in_a_pipe_it_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert output.table(HEADER, ROWS) == PLAIN


def test_a_narrow_terminal_cuts_no_cell(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    with terminal:
        text = ESCAPES.sub("", output.table(("KEY", "NOTE"), [("0123456789" * 6, f"{WORD} " * 5)]))
    assert "0123456789" * 6 in text
    assert text.count(WORD) == 5
    assert text.splitlines()[0] == f"KEY   {'0123456789' * 6}", "a block for each row"


RESULTS = ("EVALUATION", "PARAMS", "METRIC", "VALUE", "95 % INTERVAL", "N", "WARNINGS")
MEASURED = [
    ("clean", "", "top1", "87.00 %", "[78.80 %, 92.29 %]", "100", ""),
    (
        "pgd",
        "epsilon=4/255, steps=40, relative_step_size=0.25",
        "top1",
        "60.00 %",
        "[50.20 %, 69.06 %]",
        "100",
        WORD,
    ),
    ("corruptions", "severity=3", "gaussian_noise severity 3/top1", "9.00 %", "[4.81 %, 16.23 %]", "100", ""),
]


@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.parametrize("drawn", ["coloured", "plain", "without rich"])
def test_a_table_fits_the_terminal_and_breaks_no_word(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, columns: int, drawn: str
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    if drawn == "plain":
        monkeypatch.setenv("NO_COLOR", "1")
    if drawn == "without rich":
        monkeypatch.setitem(sys.modules, "rich.console", None)
    with terminal:
        text = ESCAPES.sub("", output.table(RESULTS, MEASURED))
    assert max(map(len, text.splitlines())) <= columns
    left_out = {60: {"N", "WARNINGS"}, 80: {"WARNINGS"}, 120: set()}[columns]
    named = text.splitlines()[-1].partition(": ")[2].partition(" (")[0]
    assert {name for name in named.split(", ") if left_out} == left_out
    words = {
        word
        for row in MEASURED
        for name, cell in zip(RESULTS, row, strict=True)
        for word in ([cell] if name in ("VALUE", "95 % INTERVAL") else cell.split())
        if name not in left_out
    }
    assert {word for word in words if word not in text} == set()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_name_without_spaces_is_broken(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, job: Any, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    name = "averyverylongname" * 7
    with terminal:
        text = ESCAPES.sub("", output.jobs_table([job.model_copy(update={"name": name})]))
    assert max(map(len, text.splitlines())) <= width
    assert name in "".join(text.split())


def test_parameters_that_leave_the_columns_stand_below_their_row(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with terminal:
        lines = ESCAPES.sub("", output.table(RESULTS, MEASURED)).splitlines()
    assert lines[2].split()[:2] == ["pgd", "top1"]
    assert lines[3] == "  epsilon=4/255, steps=40, relative_step_size=0.25"


def test_control_characters_and_markup_do_not_reach_the_terminal(terminal: Terminal) -> None:
    with terminal:
        text = output.table(("NAME",), [("\x1b[5mevil [bold]x[/bold]",)])
    assert "\x1b[5m" not in text
    assert r"\x1b[5mevil [bold]x[/bold]" in text


def test_long_lines_are_wrapped_between_words_on_a_terminal_alone(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    text = "error: there are 3 of them, and `assay results abc --full` has all\n" + "x" * 40
    assert fitted(text, terminal.file).split("\n") == [
        "error: there are 3 of them,",
        "  and",
        "  `assay results abc --full`",
        "  has all",
        "x" * 40,
    ]
    red = "\x1b[31m" + "y " * 15
    assert fitted(red, terminal.file) == red, "a colour has no width"
    assert fitted(text, io.StringIO()) == text


def test_jobs_and_status_have_coloured_states(terminal: Terminal, job: Any) -> None:
    with terminal:
        assert main.main(["jobs"]) == 0
        assert main.main(["status", job.id]) == 0
    assert terminal.text().count("\x1b[2mqueued") == 2


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("line", ["help", "help more"])
def test_the_help_fits_the_terminal(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, columns: int, line: str
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    with terminal, contextlib.suppress(SystemExit):
        main.main(line.split())
    lines = terminal.text().splitlines()
    assert max(map(len, lines)) <= columns
    if line == "help":
        assert [text.split()[1] for text in lines if text.startswith("  assay ")] == [
            "evaluate", "serve", "submit", "results", "compare", "report"
        ]  # fmt: skip
        assert len(lines) < 14, "a line for each"


@pytest.mark.costly
@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("more", [(), ("--full",)])
def test_results_fit_the_terminal_and_end_with_the_sentence(
    terminal: Terminal,
    monkeypatch: pytest.MonkeyPatch,
    job: Any,
    transport: Any,
    evaluate_body: Make,
    worker: Any,
    columns: int,
    more: tuple[str, ...],
) -> None:
    attacked = AssayClient("http://127.0.0.1", transport=transport).submit(evaluate_body(name="attacked"))
    worker.run(attacked.id, [1, 1, 1, 0], [1, 0, 0, 0])
    monkeypatch.setenv("COLUMNS", str(columns))
    with terminal:
        assert main.main(["results", attacked.id, *more]) == 0
    lines = ESCAPES.sub("", terminal.text()).splitlines()
    table = [line for line in lines if "%" in line or line.startswith("CASE")]
    assert max(map(len, table)) <= columns
    assert lines[-3].startswith("clean ")
    assert lines[-2].startswith("worst case  pgd 2/255")
    assert lines[-1] == "1 of 4 images hold at 2/255 under the strongest attack run; clean 3 of 4."
    assert any(line.startswith("EVALUATION") for line in lines) == bool(more)


@pytest.mark.parametrize("columns", [80, 120])
def test_evaluate_fits_the_terminal(
    terminal: Terminal,
    monkeypatch: pytest.MonkeyPatch,
    transport: Any,
    evaluate_body: Make,
    worker: Any,
    columns: int,
) -> None:
    client = AssayClient("http://127.0.0.1", transport=transport)
    job = client.submit(evaluate_body(name="attacked"))
    worker.run(job.id, [1, 1, 1, 0], [1, 0, 0, 0])
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys, "stderr", terminal.file)
    options = argparse.Namespace(json=False, full=False, report=None)
    with terminal:
        assert evaluate._finish(options, client, client.job(job.id), None) == 0
    lines = ESCAPES.sub("", terminal.text()).splitlines()
    assert any("succeeded" in line for line in lines)
    assert max(len(line) for line in lines[-6:]) <= columns
    said = "1 of 4 images hold at 2/255 under the strongest attack run; clean 3 of 4."
    again = f"`assay results {job.id} --url http://127.0.0.1` shows its results again"
    assert " ".join(" ".join(lines).split()).endswith(f"{said} job {job.id}: {again}")


@pytest.mark.parametrize("columns", ["80", "120"])
@pytest.mark.parametrize("full", [False, True])
def test_a_comparison_is_a_summary_and_a_table_of_a_row_for_each_metric(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, columns: str, *, full: bool
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    ids = ["x" * 26, "y" * 26]
    test = {"name": "mcnemar", "p_value": 0.0001, "adjusted_p_value": 0.0094}
    rows = [
        {
            "evaluation": "assay_fast", "params": {"epsilon": f"{radius}/255", "steps": 10},
            "protocol": "pixel", "data": {"name": "digits", "params": {}}, "metric": metric,
            "unit": "proportion", "values": [{"job": job, "value": 0.5} for job in ids], "difference": 0.25,
            "ci_low": -0.1, "ci_high": 0.6, "test": test,
        }
        for radius in range(1, 10)
        for metric in ("top1", "expected_accuracy_under_attack", "attack_success_rate")
    ]  # fmt: skip
    warnings = [{"code": "not_common", "message": f"only {n}", "evidence": {}} for n in range(9)]
    comparison = {"jobs": ids, "adjust": "holm", "rows": rows, "warnings": warnings}
    with terminal:
        say(output.comparison_table(comparison, full=full))
    text = ESCAPES.sub("", terminal.text())
    assert not too_wide("compare", text, int(columns))
    lines = text.splitlines()
    head = next(place for place, line in enumerate(lines) if "B - A" in line and "METRIC" in line)
    assert head <= 8, "the summary is short, and stands first"
    assert text.count("top1") - text.split("METRIC")[0].count("top1") == 9, "a row for each metric"
    assert text.count("caution not_common") == (9 if full else 3)
    more = "18 more metrics, 18 with adjusted p < 0.05; 6 more warnings: `--full`"
    assert (more in text) is not full
    assert "FIRST" not in text
    assert len(lines) <= 20 + (2 if columns == "80" or full else 1) * (27 if full else 9)
