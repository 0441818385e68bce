"""What a terminal shows, on a pty, and what a pipe gets."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest

from assay.service.cli import main, output
from tests.support.terminals import ESCAPES, Terminal

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
        text = ESCAPES.sub("", output.table(("SHA256", "NOTE"), [("0123456789" * 6, f"{WORD} " * 5)]))
    assert "0123456789" * 6 in text
    assert text.count(WORD) == 5


def test_control_characters_and_markup_do_not_reach_the_terminal(terminal: Terminal) -> None:
    with terminal:
        text = output.table(("NAME",), [("\x1b[5mevil [bold]x[/bold]",)])
    assert "\x1b[5m" not in text
    assert r"\x1b[5mevil [bold]x[/bold]" in text


def test_jobs_and_status_have_coloured_states(terminal: Terminal, job: Any) -> None:
    with terminal:
        assert main.main(["jobs"]) == 0
        assert main.main(["status", job.id]) == 0
    assert terminal.text().count("\x1b[2mqueued") == 2
