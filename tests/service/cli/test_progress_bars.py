"""Progress of jobs: bars on a terminal, lines in a pipe."""

from __future__ import annotations

import io
import re
import sys
import threading
from typing import Any

import pytest

from assay.service.cli import main, output, progress_bars
from assay.service.cli.progress_bars import Bars, Spinner, line_of
from assay.service.client import AssayClient
from assay.service.contract.results import Progress
from assay.service.contract.states import JobState
from assay.service.reports import numbers
from tests.support.terminals import ESCAPES, Make, Terminal


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

        def draw(state: str, share: float, seconds: int, message: str = "") -> None:
            now[0] = seconds
            progress = Progress(
                done=int(100 * share), total=100, unit="examples", eta_seconds=90.0, share=share
            )
            changes = {"state": JobState(state), "progress": progress, "message": message}
            at = f"2026-01-01T00:{seconds // 60:02}:{seconds % 60:02}.123Z"
            bars.draw({"tiny": job.model_copy(update=changes)}, at)

        draw("queued", 0, 0)
        draw("running", 0, 1)
        draw("running", 0.05, 2, "not said")
        draw("running", 0.11, 3, "evaluating")
        draw("running", 0.12, 6, "too soon")
        draw("running", 0.12, 7)
        draw("running", 0.13, 63)
        draw("running", 0.14, 92, "too soon after a minute")
        draw("running", 0.15, 93)
        draw("succeeded", 1, 95)
    assert written.getvalue().splitlines() == [
        "2026-01-01T00:00:00Z tiny: queued, 90 s left",
        "2026-01-01T00:00:01Z tiny: running, 0% of the work (0/100 examples), 90 s left",
        "2026-01-01T00:00:03Z tiny: running, 11% of the work (11/100 examples), 90 s left: evaluating",
        "2026-01-01T00:00:07Z tiny: running, 12% of the work (12/100 examples), 90 s left",
        "2026-01-01T00:01:03Z tiny: running, 13% of the work (13/100 examples), 90 s left",
        "2026-01-01T00:01:33Z tiny: running, 15% of the work (15/100 examples), 90 s left",
        "2026-01-01T00:01:35Z tiny: succeeded, 100% (100/100 examples)",
    ]


def test_without_a_total_a_line_has_no_count(job: Any) -> None:
    unknown = Progress(done=0, total=None, unit="examples", eta_seconds=None)
    running = job.model_copy(update={"state": JobState.RUNNING, "progress": unknown, "message": ""})
    written = io.StringIO()
    with Bars(["tiny"], written) as bars:
        bars.draw({"tiny": running}, "2026-01-01T00:00:01.123Z")
    assert written.getvalue().startswith("2026-01-01T00:00:01Z tiny: running")
    assert not any(part in written.getvalue() for part in ("?", "%", "0 examples"))
    assert output.done(running) == "0 examples"


@pytest.mark.parametrize(
    ("state", "eta", "share", "workers", "shown"),
    [
        ("running", None, 0.0, 1, numbers.ESTIMATING),
        ("running", None, None, 1, numbers.ESTIMATING),
        ("running", 720.0, 0.5, 1, "12 min left"),
        ("running", None, 1.0, 1, ""),  # merging
        ("running", None, 0.5, 0, ""),  # its message says what it waits for
        ("queued", None, None, 1, ""),
        ("failed", 720.0, 0.5, 1, ""),
    ],
)
def test_the_time_left_is_said_once_it_is_known(
    job: Any, state: str, eta: float | None, share: float | None, workers: int, shown: str
) -> None:
    progress = Progress(done=5, total=10, unit="examples", eta_seconds=eta, share=share)
    changes = {"state": JobState(state), "progress": progress, "workers_online": workers}
    now = job.model_copy(update=changes)
    assert numbers.left_text(now) == line_of(now).left == shown


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
    assert lines[-6].startswith("succeeded, 100%"), "before the summary"


def until(written: io.StringIO, count: int) -> list[str]:
    """The lines once there are so many."""
    for _ in range(1000):
        if len(lines := written.getvalue().splitlines()) >= count:
            return lines
        threading.Event().wait(0.01)
    raise AssertionError(f"{count} lines are missing: {written.getvalue()!r}")


def test_in_a_pipe_what_takes_long_is_said_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_bars, "BRISK_PAUSE", 0.01)
    written = io.StringIO()
    with Spinner(written) as waiting:
        waiting.tell("exporting a\x1b")
        first, again = until(written, 2)[:2]
        assert first == "exporting a\\x1b"
        assert re.fullmatch(r"\S+Z exporting a\\x1b, \d+ s", again)
        waiting.tell("warning: odd")
        assert written.getvalue().splitlines()[-1] == "warning: odd"
        waiting.end()
        before = written.getvalue()
    assert written.getvalue() == before, "a warning is nothing to wait for"


def test_without_lines_only_what_takes_long_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    with Spinner(written, lines=False) as waiting:
        waiting.tell("the service writes the report")
    assert written.getvalue() == ""
    monkeypatch.setattr(progress_bars, "BRISK_PAUSE", 0.01)
    with Spinner(written, lines=False) as waiting:
        waiting.tell("the service writes the report")
        until(written, 1)


def test_on_a_terminal_a_spinner_counts_the_seconds(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_bars, "SILENT_SECONDS", 0.0)
    with Spinner(terminal.file) as waiting:
        waiting.tell("starting a service")
    text = terminal.text()
    assert "starting a service, 0 s" in ESCAPES.sub("", text)
    assert ESCAPES.sub("", text).splitlines()[-1].endswith("starting a service, 0 s")
    assert text.count("\x1b[?25h") == text.count("\x1b[?25l"), "the cursor is given back"


def test_without_rich_a_spinner_counts_in_its_line(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    monkeypatch.setattr(progress_bars, "TICK_SECONDS", 0.01)
    monkeypatch.setenv("COLUMNS", "40")
    with Spinner(terminal.file) as waiting:
        waiting.tell("starting a service, its state in a folder of a long name")
        threading.Event().wait(0.1)
    *moving, last = terminal.text().split("\r")
    assert len(moving) > 3
    assert {part.rstrip() for part in moving} == {"", "starting a service, its state ..., 0 s"}
    assert last == "starting a service, its state in a\n  folder of a long name\n"


def test_without_rich_a_log_fits_the_terminal(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, job: Any
) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    monkeypatch.setenv("COLUMNS", "60")
    now = job.model_copy(update={"state": JobState.RUNNING, "message": f"{MESSAGE}, {MESSAGE}"})
    with terminal, Bars(["tiny"]) as bars:
        bars.draw({"tiny": now})
        bars.note("tiny", "uniform_noise epsilon=1/255: top1 99.2 % [97.5 %, 99.7 %], n = 355")
    lines = terminal.text().splitlines()
    assert len(lines) > 4
    assert max(map(len, lines)) <= 60


LABELS = ("example", "my_package.models:build")
MESSAGE = "assay_fast 2/255: 214 of 355 left after apgd_pairs"


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (60, "27% running   12 min left"),
        (80, "27% running   12 min left  assay_fast ..."),
        (120, f"27% running   12 min left  {MESSAGE}"),
    ],
)
def test_a_line_fits_the_terminal_with_state_and_share_whole(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, columns: int, shown: str
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    line = progress_bars.ProgressLine(
        "running", 0.27, "9/33", 9, "examples", "12 min left", MESSAGE, ended=False
    )
    with terminal, Bars(LABELS) as bars:
        bars.show(dict.fromkeys(LABELS, line))
    lines = [part.rstrip() for part in re.split(r"[\r\n]+", ESCAPES.sub("", terminal.text()))]
    assert max(map(len, lines)) <= columns
    last = [part for part in lines if part.startswith("example")][-1]
    assert re.fullmatch(rf"example +[━╸╺]{{10,}} +{re.escape(shown)}", last)
    assert "[]" not in "".join(lines)
    assert any(part.startswith(LABELS[1]) for part in lines) == (columns > 60)


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
def test_every_line_of_a_job_is_as_long_as_the_others(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    """The bar stays where it is for every state, share and message."""
    monkeypatch.setenv("COLUMNS", str(columns))
    with terminal, Bars(["example"]) as bars:
        for state, share, left, said in (
            ("queued", 0.0, "", ""), ("running", 0.0, numbers.ESTIMATING, "clean"),
            ("running", 0.3, "12 min left", MESSAGE), ("canceling", 0.9, "9 s left", "pgd"),
            ("succeeded", 1.0, "", ""),
        ):  # fmt: skip
            line = progress_bars.ProgressLine(state, share, "9/33", 9, "examples", left, said, ended=False)
            bars.show({"example": line})
            bars._progress.refresh()  # type: ignore[union-attr]
    lines = [part for part in re.split(r"[\r\n]+", ESCAPES.sub("", terminal.text())) if "━" in part]
    assert len({len(line) for line in lines}) == 1 < len(lines)
    assert len({len(re.search(r"[━╸╺]+", line)[0]) for line in lines}) == 1  # type: ignore[index]


def test_the_speed_stands_where_there_is_room_for_the_message_too() -> None:
    whole = "1,070 examples/s  12 min left  pgd 1/255"
    assert progress_bars.fitting("12 min left", "pgd 1/255", "1,070 examples/s", len(whole)) == whole
    assert progress_bars.fitting("12 min left", "pgd 1/255", "1,070 examples/s", len(whole) - 1) == (
        "12 min left  pgd 1/255"
    )
    assert progress_bars.fitting("", "pgd", "", 2) == ""


def test_a_rate_is_written_without_a_power_of_ten() -> None:
    assert [progress_bars.rate(value) for value in (0.5234, 12.34, 99.96, 1070.4, 2_345_678.0)] == [
        "0.523", "12.3", "100", "1,070", "2,345,678"
    ]  # fmt: skip
