"""The line of a job that is followed: also while nothing happens."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from assay.service.cli import job_progress, progress_bars
from assay.service.cli.job_progress import awaited_text, follow_to_end, or_quiet
from assay.service.client import AssayClient
from assay.service.contract.errors import Unavailable
from assay.service.contract.events import Event
from assay.service.contract.results import Job
from assay.service.contract.states import JobState

WAITS = "no worker is listening for this job; online, and not fit: program: other code: restart the worker"


def test_items_come_with_none_while_there_are_none() -> None:
    go_on = threading.Event()

    def items() -> Iterator[int]:
        yield 1
        assert go_on.wait(60)
        yield 2

    found = []
    for item in or_quiet(items(), 0.01):
        found.append(item)
        if item is None:
            go_on.set()
    assert (found[0], found[-1]) == (1, 2)
    assert {*found[1:-1]} == {None}


def test_errors_of_the_items_are_raised() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise Unavailable("gone")

    found = or_quiet(items(), 60)
    assert next(found) == 1
    with pytest.raises(Unavailable, match="gone"):
        next(found)
    assert [*or_quiet(iter([3]), 60)] == [3]


@pytest.mark.parametrize(("message", "left"), [("pgd", ""), ("pgd 1/255: 3 left", ""), ("pgd_l2", "pgd_l2")])
def test_the_message_about_an_evaluation_goes_with_its_result(
    transport: httpx.BaseTransport, train_body: Callable[..., dict[str, Any]], message: str, left: str
) -> None:
    with AssayClient("http://127.0.0.1", transport=transport) as client:
        job = client.submit(train_body()).model_copy(update={"message": message})
    event = Event(id=1, type="metric", at="2026-01-01T00:00:00Z", data={"evaluation": 0, "name": "pgd"})
    assert job_progress.applied(job, event).message == left


class Quiet:
    """A client of a job without events, until its message was asked for some times."""

    def __init__(self, job: Job, looks: int) -> None:
        self.now, self.left, self.over = job, looks, threading.Event()

    def events(self, job_id: str) -> Iterator[Event]:
        assert self.over.wait(60)
        yield from ()

    def job(self, job_id: str) -> Job:
        self.left -= 1
        if self.left == 0:
            self.over.set()
        if self.left == 1:
            raise Unavailable("for a moment")
        return self.now.model_copy(update={"message": WAITS})

    def wait(self, job_id: str, *, callback: Callable[[Job], None]) -> Job:
        ended = self.now.model_copy(update={"state": JobState.SUCCEEDED})
        callback(ended)
        return ended


def test_a_job_that_waits_says_for_what_once(
    transport: httpx.BaseTransport,
    train_body: Callable[..., dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(job_progress, "QUIET_SECONDS", 0.01)
    with AssayClient("http://127.0.0.1", transport=transport) as client:
        job = client.submit(train_body(name="tiny"))
    assert follow_to_end(Quiet(job, 4), job) == 0  # type: ignore[arg-type]
    said = capsys.readouterr().out
    assert said.count(f"tiny: {WAITS}\n") == 1
    assert said.splitlines()[-1].endswith("tiny: succeeded, 100%")


def test_messages_of_a_training_are_no_lines_of_their_own(
    transport: httpx.BaseTransport,
    train_body: Callable[..., dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It reports about each second; a line of its own is for what a job waits for."""
    monkeypatch.setattr(job_progress, "TICK_SECONDS", 0.02)
    with AssayClient("http://127.0.0.1", transport=transport) as client:
        job = client.submit(train_body(name="tiny"))

    class Training(Quiet):
        def events(self, job_id: str) -> Iterator[Event]:
            for epoch in range(3):
                told = {"message": f"epoch {epoch}/3"}
                yield Event(id=epoch + 1, type="log", at="2026-01-01T00:00:00Z", data=told)
                time.sleep(0.1)

    assert follow_to_end(Training(job, 99), job) == 0  # type: ignore[arg-type]
    assert "tiny: epoch" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("state", "message", "said"),
    [
        ("waiting", "", "waiting for earlier jobs, 6 s"),
        ("queued", "", "waiting for a worker, 6 s"),
        ("starting", "", "loading torch, model and data in the evaluator, 6 s"),
        (
            "running",
            "planning: compiling passes, to see if it pays",
            "planning: compiling passes, to see if it pays, 6 s",
        ),
        ("running", "", "the evaluator computes, 6 s"),
        ("canceling", "", "waiting for the evaluator to stop, 6 s"),
    ],
)
def test_a_silent_job_says_what_it_waits_for(
    transport: httpx.BaseTransport,
    train_body: Callable[..., dict[str, Any]],
    state: str,
    message: str,
    said: str,
) -> None:
    with AssayClient("http://127.0.0.1", transport=transport) as client:
        job = client.submit(train_body())
    now = job.model_copy(update={"state": JobState(state), "message": message})
    assert awaited_text(now, 6.0) == said


def test_a_silent_job_in_a_pipe_has_lines_at_most_every_half_minute(
    transport: httpx.BaseTransport,
    train_body: Callable[..., dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(job_progress, "QUIET_SECONDS", 0.01)
    now = itertools.count(0.0, 7.0)
    clock = SimpleNamespace(monotonic=lambda: next(now))
    monkeypatch.setattr(job_progress, "time", clock)
    monkeypatch.setattr(progress_bars, "time", clock)
    with AssayClient("http://127.0.0.1", transport=transport) as client:
        job = client.submit(train_body(name="tiny")).model_copy(update={"message": ""})

    class Silent(Quiet):
        def job(self, job_id: str) -> Job:
            self.left -= 1
            if self.left == 0:
                self.over.set()
            return self.now

    assert follow_to_end(Silent(job, 12), job) == 0  # type: ignore[arg-type]
    lines = [line for line in capsys.readouterr().out.splitlines() if "waiting for a worker, " in line]
    assert 1 <= len(lines) <= 6
