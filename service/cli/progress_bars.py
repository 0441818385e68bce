"""Progress of jobs: live bars on a terminal, lines for a log in pipes and files."""

from __future__ import annotations

import sys
import textwrap
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Self, TextIO

from assay.service.cli.terminal import STATES, console_of
from assay.service.contract.results import Job
from assay.service.fitted_text import GAP, columns, fitted
from assay.service.reports.numbers import clock, left_text, printable, speed_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

WIDTH, NARROW = 30, 10  # columns of a bar, and of a bar on a narrow terminal
PERCENT, STATE, GAPS = 4, 9, 5  # columns of the percentage, of the state, and between the parts of a line
FACTS = 64  # columns that a bar leaves where it can be longer
LABEL_SHARE = 3  # a label has at most this part of the terminal
MESSAGE, DOTS = 60, " ..."
WORK = " of the work"  # planned: examples of an attack are more of it than clean ones
# A log gets a line at every tenth of the way, and after so many seconds.
TENTHS = 10
PAUSE_SECONDS = 30.0
SILENT_SECONDS = 5.0  # Nothing takes longer without a word
BRISK_PAUSE, BRISK_SECONDS = 4.0, 60.0  # between lines, and how long a wait or a job has such lines
TICK_SECONDS, REFRESHES = 1.0, 4


@dataclass(frozen=True)
class ProgressLine:
    """What a line shows of something that runs: a job, a study; `share` is in [0, 1], `left` as text.

    `measure` is what the share is of, where that is not the count: " of the work", as planned.
    """

    state: str
    share: float
    done: str
    count: int
    unit: str
    left: str
    message: str
    ended: bool
    measure: str = ""


class Bars:
    """A bar per job, used in a `with` block, which gives the terminal back."""

    def __init__(self, labels: Sequence[str], output: TextIO | None = None) -> None:
        self._output = output or sys.stdout
        self._said: dict[str, tuple[str, int, float]] = {}
        self._begun: dict[str, tuple[float, int]] = {}
        self._since = time.monotonic()
        self._progress: Progress | None = None
        console = console_of(self._output)
        if console is not None:
            label = min(max(map(len, labels)), console.width // LABEL_SHARE)
            rest = console.width - label - PERCENT - STATE - GAPS
            bar = min(WIDTH, max(NARROW, rest - FACTS))
            self._room = rest - bar  # columns of a line's facts
            self._progress = _live(console, label, bar, self._room)
            self._tasks: dict[str, TaskID] = {
                label: self._progress.add_task(label, total=None, state="", style="default", facts="")
                for label in labels
            }

    def __enter__(self) -> Self:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()
        self._output.flush()

    def draw(self, jobs: Mapping[str, Job], at: str | None = None) -> None:
        """Shows the present progress of jobs; `at` is the time in ISO 8601, the present one if absent."""
        self.show({label: line_of(job) for label, job in jobs.items()}, at)

    def show(self, lines: Mapping[str, ProgressLine], at: str | None = None) -> None:
        """Shows the present progress of anything."""
        for label, now in lines.items():
            if self._progress is None:
                self._say_change(label, now, at)
                continue
            self._progress.update(
                self._tasks[label],
                total=None if now.share == 0 and not now.ended else 1.0,
                completed=now.share,
                state=now.state,
                style=STATES.get(now.state, "default"),
                facts=self._facts(label, now),
            )

    def note(self, label: str, text: str, at: str | None = None) -> None:
        """Writes a line of its own, above the bars."""
        if self._progress is not None:
            self._progress.console.print(f"{label}: {text}")
        else:
            state, tenth, _ = self._said.get(label, ("", 0, 0.0))
            self._said[label] = (state, tenth, time.monotonic())
            self._say(label, text, at)

    def _facts(self, label: str, now: ProgressLine) -> str:
        first = self._begun.setdefault(label, (time.monotonic(), now.count))
        seconds, more = time.monotonic() - first[0], now.count - first[1]
        if now.ended:
            return fitting("", now.message, "", self._room)
        speed = f"{rate(more / seconds)} {now.unit}/s" if more > 0 and seconds > 0 else ""
        return fitting(now.left, now.message, speed, self._room)

    def _say_change(self, label: str, now: ProgressLine, at: str | None) -> None:
        state, tenth, said_at = self._said.get(label, ("", 0, 0.0))
        moved = int(TENTHS * now.share) != tenth and not now.ended
        present = time.monotonic()
        if (
            now.state == state
            and not moved
            and (now.ended or present - said_at < pause(present - self._since))
        ):
            return
        self._said[label] = (now.state, int(TENTHS * now.share), present)
        parts = [now.state]
        if now.share > 0 or (now.state == "running" and now.done):
            parts.append(f"{now.share:.0%}{now.measure}{f' ({now.done})' if now.done else ''}")
        if now.left:
            parts.append(now.left)
        said = f": {now.message}" if now.message else ""
        self._say(label, f"{', '.join(parts)}{said}", at)

    def _say(self, label: str, text: str, at: str | None) -> None:
        self._output.write(f"{fitted(f'{to_second(at)} {label}: {text}', self._output)}\n")
        self._output.flush()


class Spinner:
    """Says what a command waits for, in a `with` block: a line with its seconds, or lines after `pause`.

    `lines`: each text is a line of its own, too; without, only what takes long is said in pipes and files.
    """

    def __init__(self, output: TextIO | None = None, *, lines: bool = True) -> None:
        self._output, self._lines = output or sys.stderr, lines
        self._end: Callable[[], None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def tell(self, text: str) -> None:
        """Begins to wait for something else; a warning is a line and nothing to wait for."""
        self.end()
        text, begun = printable(text), time.monotonic()
        if text.startswith("warning: "):
            self._write(text)
        elif (console := console_of(self._output)) is not None:
            live = _spinner(console, text)
            self._end = partial(self._stopped, live, text, begun)
        else:
            drawn = self._output.isatty()
            if self._lines and not drawn:
                self._write(text)
            over = threading.Event()
            run = self._count if drawn else self._repeat
            thread = threading.Thread(target=run, args=(over, text, begun), daemon=True)
            thread.start()
            self._end = partial(self._ended, over, thread, text, begun) if drawn else over.set

    def end(self) -> None:
        """Ends the waiting, before other output."""
        end, self._end = self._end, None
        if end is not None:
            end()

    def _ended(self, over: threading.Event, thread: threading.Thread, text: str, begun: float) -> None:
        over.set()
        thread.join()
        self._last(text, begun)

    def _stopped(self, live: Progress, text: str, begun: float) -> None:
        live.stop()
        self._last(text, begun)

    def _last(self, text: str, begun: float) -> None:
        seconds = time.monotonic() - begun
        if self._lines:
            self._write(text if seconds < SILENT_SECONDS else f"{text}, {clock(seconds)}")

    def _repeat(self, over: threading.Event, text: str, begun: float) -> None:
        while not over.wait(pause(time.monotonic() - begun)):
            self._write(f"{to_second(None)} {text}, {clock(time.monotonic() - begun)}")

    def _count(self, over: threading.Event, text: str, begun: float) -> None:
        room = columns(self._output) - 1  # in the last column some terminals go on to the next line
        ended = False
        while not ended:
            seconds = f", {clock(time.monotonic() - begun)}"
            line = textwrap.shorten(text, max(room - len(seconds), len(DOTS)), placeholder=DOTS) + seconds
            self._output.write(f"\r{line:<{room}}")
            self._output.flush()
            ended = over.wait(TICK_SECONDS)
        self._output.write(f"\r{'':<{room}}\r")

    def _write(self, text: str) -> None:
        self._output.write(f"{fitted(text, self._output)}\n")
        self._output.flush()


def pause(seconds: float) -> float:
    """Seconds from a line to the next, of what has gone on for so many."""
    return BRISK_PAUSE if seconds < BRISK_SECONDS else PAUSE_SECONDS


def line_of(job: Job) -> ProgressLine:
    """What a line shows of a job."""
    # Why a job failed is said once, below the bars.
    said = "" if job.state.terminal else "; ".join(filter(None, [job.message, speed_text(job.progress)]))
    # Events of progress may lag behind the last event.
    done = job.progress.total if job.state == "succeeded" and job.progress.total else job.progress.done
    return ProgressLine(
        job.state.value,
        share(job),
        f"{done}/{job.progress.total} {job.progress.unit}" if job.progress.total else "",
        done,
        job.progress.unit,
        left_text(job),
        "".join(c if c.isprintable() else " " for c in said),
        job.state.terminal,
        "" if job.progress.share is None or job.state.terminal else WORK,
    )


def share(job: Job) -> float:
    """Share of the job that is done, in [0, 1]: of its cost, or of its examples from an older service."""
    if job.state == "succeeded":
        return 1.0
    if job.progress.share is not None:
        return job.progress.share
    return min(job.progress.done / job.progress.total, 1.0) if job.progress.total else 0.0


def rate(value: float) -> str:
    """A rate for people: `0.52`, `12.3`, `1,070`."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def fitting(left: str, message: str, speed: str, room: int) -> str:
    """The facts of a line in so many columns: time left, whole words of the message, the speed if it fits."""
    message = textwrap.shorten(message, MESSAGE, placeholder=DOTS)
    whole = GAP.join(filter(None, [speed, left, message]))
    if len(whole) <= room:
        return whole
    rest = room - len(left) - len(GAP if left else "")
    words = textwrap.shorten(message, rest, placeholder=DOTS) if rest > len(DOTS) else ""
    return GAP.join(filter(None, [left, words]))


def to_second(at: str | None) -> str:
    """A time in ISO 8601 (UTC) without the parts of its second; the present time for None."""
    moment = datetime.now(UTC) if at is None else datetime.fromisoformat(at)
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _spinner(console: Console, text: str) -> Progress:
    from rich.progress import Progress, SpinnerColumn, TextColumn

    parts = (SpinnerColumn(), TextColumn("{task.description}, {task.elapsed:.0f} s", markup=False))
    live = Progress(*parts, console=console, transient=True, refresh_per_second=REFRESHES)
    live.add_task(text, total=None)
    live.start()
    return live


def _live(console: Console, label: int, bar: int, facts: int) -> Progress:
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
    from rich.table import Column

    def fixed(width: int) -> Column:
        return Column(no_wrap=True, overflow="ellipsis", width=width)

    return Progress(
        TextColumn("{task.description}", markup=False, table_column=fixed(label)),
        BarColumn(bar),
        TaskProgressColumn(table_column=fixed(PERCENT)),
        TextColumn("[{task.fields[style]}]{task.fields[state]}", table_column=fixed(STATE)),
        TextColumn("{task.fields[facts]}", markup=False, table_column=fixed(facts)),
        console=console,
        refresh_per_second=REFRESHES,
        redirect_stdout=False,
        redirect_stderr=False,
    )
