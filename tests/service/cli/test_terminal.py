"""What a terminal shows, on a pty, and what a pipe gets."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.service.cli import commands, main, output, progress_bars
from assay.service.cli.progress_bars import Bars
from assay.service.client import AssayClient
from assay.service.contract.results import Progress
from assay.service.contract.states import JobState

Make = Callable[..., dict[str, Any]]
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A pty of 100 columns, standard output in a `with` block: pytest sets it anew before each test."""

    def __init__(self) -> None:
        self._reading, writing = os.openpty()
        os.set_blocking(self._reading, False)
        self.file = os.fdopen(writing, "w")

    def __enter__(self) -> None:
        self._before, sys.stdout = sys.stdout, self.file

    def __exit__(self, *_: object) -> None:
        sys.stdout = self._before

    def text(self) -> str:
        self.file.flush()
        found = b""
        with contextlib.suppress(BlockingIOError):
            while True:
                found += os.read(self._reading, 100_000)
        return found.decode().replace("\r\n", "\n")

    def close(self) -> None:
        self.file.close()
        os.close(self._reading)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    found = Terminal()
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("LINES", "40")
    yield found
    found.close()


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch, transport: Any, train_body: Make, tmp_path: Path) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ASSAY_URL", raising=False)
    monkeypatch.setattr(commands, "AssayClient", lambda url: AssayClient(url, transport=transport))
    return AssayClient("http://127.0.0.1", transport=transport).submit(train_body(name="tiny"))


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


def test_bars_are_drawn_in_place(terminal: Terminal, job: Any) -> None:
    running = job.model_copy(
        update={
            "state": JobState.RUNNING,
            "progress": Progress(done=9, total=10, unit="examples", eta_seconds=754.0, share=0.25),
        }
    )
    with terminal, Bars(["[tiny]", "other"]) as bars:
        bars.draw({"[tiny]": running, "other": job})
        bars.note("[tiny]", "pgd: top1 50.0 %")
    text = terminal.text()
    assert "\x1b[?25l" in text, "the cursor is hidden"
    assert "\x1b[?25h" in text, "and given back"
    seen = ESCAPES.sub("", text)
    assert re.search(r"\[tiny\] +━+.* 25% running +13 min left", seen)
    assert "[tiny]: pgd: top1 50.0 %\n" in seen
    assert re.search(r"other +━+.* queued", seen)


def test_a_pipe_gets_lines_for_a_log(job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(progress_bars.time, "monotonic", lambda: now[0])
    written = io.StringIO()
    with Bars(["tiny"], written) as bars:

        def draw(state: str, share: float, seconds: float, message: str = "") -> None:
            now[0] = seconds
            progress = Progress(
                done=int(100 * share), total=100, unit="examples", eta_seconds=90.0, share=share
            )
            changes = {"state": JobState(state), "progress": progress, "message": message}
            bars.draw({"tiny": job.model_copy(update=changes)}, f"2026-01-01T00:00:{seconds:02.0f}.123Z")

        draw("queued", 0, 0)
        draw("running", 0, 1)
        draw("running", 0.05, 2, "not said")
        draw("running", 0.11, 3, "evaluating")
        draw("running", 0.12, 30)
        draw("running", 0.13, 34)
        draw("succeeded", 1, 50)
    assert written.getvalue().splitlines() == [
        "2026-01-01T00:00:00Z tiny: queued, 90 s left",
        "2026-01-01T00:00:01Z tiny: running, 0% (0/100 examples), 90 s left",
        "2026-01-01T00:00:03Z tiny: running, 11% (11/100 examples), 90 s left: evaluating",
        "2026-01-01T00:00:34Z tiny: running, 13% (13/100 examples), 90 s left",
        "2026-01-01T00:00:50Z tiny: succeeded, 100% (100/100 examples)",
    ]


def test_watch_in_a_pipe_has_a_line_for_each_evaluation(
    capsys: pytest.CaptureFixture[str], job: Any, transport: Any, evaluate_body: Make, worker: Any
) -> None:
    evaluated = AssayClient("http://127.0.0.1", transport=transport).submit(evaluate_body(name="attacked"))
    follow = AssayClient.events

    def work(client: AssayClient, job_id: str) -> Any:
        worker.run(job_id, [1, 1, 1, 0], [1, 0, 0, 0])
        return follow(client, job_id)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AssayClient, "events", work)
        assert main.main(["watch", evaluated.id]) == 0
    out = capsys.readouterr().out
    assert "\r" not in out
    assert "\x1b" not in out
    lines = [re.sub(r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ attacked: ", "", line) for line in out.splitlines()]
    assert "clean: top1 0.75 [0.3006, 0.9544], n = 4" in lines
    assert "pgd epsilon=2/255: top1 0.25 [0.04559, 0.6994], n = 4" in lines
    assert lines[0].startswith("queued")
    assert lines[-1].startswith("succeeded, 100%")
