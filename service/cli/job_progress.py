"""A job followed to its end: its events, and between them what the service says that the job waits for."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TextIO, TypeVar

from assay.service.cli import output
from assay.service.cli.progress_bars import BRISK_PAUSE, TICK_SECONDS, Bars
from assay.service.client import AssayClient, BadAnswer
from assay.service.contract.errors import NotFound, Unavailable
from assay.service.contract.events import Event
from assay.service.contract.results import Job, Metric, Progress
from assay.service.contract.states import JobState
from assay.service.fitted_text import tell
from assay.service.reports.numbers import clock, metric_cells, split_params

OK, JOB_FAILED = 0, 1
QUIET_SECONDS = BRISK_PAUSE  # Without an event for so long, the service is asked for the job's message.
AWAITED: Mapping[JobState, str] = {
    JobState.WAITING: "waiting for earlier jobs",
    JobState.QUEUED: "waiting for a worker",
    JobState.STARTING: "loading torch, model and data in the evaluator",
    JobState.RUNNING: "the evaluator computes",
    JobState.CANCELING: "waiting for the evaluator to stop",
}

Followed = TypeVar("Followed")


def follow_to_end(
    client: AssayClient, job: Job, out: TextIO | None = None, *, told: Callable[[str], str] = str
) -> int:
    """Shows a job's progress until it has ended, on standard output by default; the exit code.

    `told`: puts the paths of this machine into the reason of a failure.
    """
    label = output.printable(job.name) or job.id
    with Bars([label], out) as bars:
        said, mark, heard = "", None, 0.0
        names = {one.get("name") for one in job.spec.get("evaluations", [])}

        def draw(now: Job, event: Event | None = None) -> None:
            nonlocal said, mark, heard
            at = None if event is None else event.at
            quiet = time.monotonic() - heard
            silent = event is None and not now.state.terminal and quiet >= QUIET_SECONDS
            # How far an evaluation is belongs to the bar, and no longer to its line of results.
            if silent and now.message not in ("", said) and now.message.partition(" ")[0] not in names:
                said = now.message
                bars.note(label, output.printable(said))
            moved = (now.state, now.progress.done, now.message)
            if event is not None or moved != mark:
                mark, heard = moved, time.monotonic()
            elif silent:
                now = now.model_copy(update={"message": awaited_text(now, quiet)})
            if event is not None and event.type == "metric" and (found := headline(event.data)):
                bars.note(label, found, at)
            bars.draw({label: now}, at)

        ended = follow(client, job, draw)
    if ended.state == JobState.SUCCEEDED:
        return OK
    tell(told(f"job {ended.id} {ended_text(ended)}"))
    return JOB_FAILED


def ended_text(job: Job) -> str:
    """How a job ended, and why, as people read it: `failed: 8 GB were not enough`."""
    reason = job.message if job.error is None else job.error.message
    return output.printable(f"{job.state.value}: {reason}" if reason else job.state.value)


def awaited_text(job: Job, seconds: float) -> str:
    """What a job without news for so long waits for: in the service's words, else by its state."""
    return f"{job.message or AWAITED.get(job.state, 'no news')}, {clock(seconds)}"


class Draw(Protocol):
    """Shows a job, after an event if it is known."""

    def __call__(self, now: Job, event: Event | None = None) -> None: ...  # noqa: D102


def follow(client: AssayClient, job: Job, draw: Draw) -> Job:
    """Draws the job at each past and new event, and returns it in its final state."""
    if job.state.terminal:
        draw(job)
        return job
    try:
        now, asked = begun(job), time.monotonic()
        for event in or_quiet(client.events(job.id), TICK_SECONDS):
            if event is not None:
                now, asked = kept(now, applied(now, event)), time.monotonic()
            elif time.monotonic() - asked >= QUIET_SECONDS:
                # only the service knows what the job waits for
                now, asked = now.model_copy(update={"message": message_of(client, now)}), time.monotonic()
            draw(now, event)
    except (NotFound, BadAnswer):
        # An older service, or a proxy that cannot stream. A deleted job is missing below too.
        now = job
    return client.wait(job.id, callback=lambda last: draw(kept(now, last)))


def or_quiet(items: Iterator[Followed], seconds: float) -> Iterator[Followed | None]:
    """Each item, and None after so many seconds without an item; a thread of its own reads them."""
    read: queue.SimpleQueue[tuple[Followed | None, BaseException | None]] = queue.SimpleQueue()

    def put() -> None:
        try:
            for item in items:
                read.put((item, None))
        except BaseException as error:  # the caller's thread raises it
            read.put((None, error))
        else:
            read.put((None, StopIteration()))

    threading.Thread(target=put, name="events", daemon=True).start()
    while True:
        try:
            item, error = read.get(timeout=seconds)
        except queue.Empty:
            yield None
            continue
        if isinstance(error, StopIteration):
            return
        if error is not None:
            raise error
        yield item


def message_of(client: AssayClient, job: Job) -> str:
    """What the service says of a job now; the message that is known while it cannot be reached."""
    try:
        return client.job(job.id).message
    except Unavailable:
        return job.message


def kept(before: Job, job: Job) -> Job:
    """The job with the progress before it, where its end has taken back what running shards had done."""
    ending = (JobState.CANCELING, JobState.CANCELED, JobState.FAILED, JobState.TIMED_OUT)
    last, progress = before.progress, job.progress
    if job.state not in ending or job.attempt != before.attempt or last.done <= progress.done:
        return job
    return job.model_copy(
        update={"progress": progress.model_copy(update={"done": last.done, "share": last.share})}
    )


def begun(job: Job) -> Job:
    """The job before its first event, in the fields that events change."""
    progress = Progress(done=0, total=job.progress.total, unit=job.progress.unit, eta_seconds=None)
    return job.model_copy(update={"progress": progress, "message": ""})


def applied(job: Job, event: Event) -> Job:
    """The job after an event."""
    data = event.data
    changes: dict[str, Any] = {}
    if event.type == "progress":
        changes = {"progress": data}
    elif event.type == "log":
        changes = {"message": data["message"]}
    elif event.type == "metric" and job.message.partition(" ")[0] == data.get("name"):
        changes = {"message": ""}  # its number is there
    elif event.type == "state":
        changes = {name: data[name] for name in ("state", "attempt", "message", "error")}
        if data["state"] == JobState.RUNNING:
            changes["workers_online"] = max(1, job.workers_online)
    return Job.model_validate(job.model_dump() | changes) if changes else job


def headline(data: Mapping[str, Any]) -> str:
    """The first number of an evaluation that has finished, from its event; empty without a number."""
    metrics: Mapping[str, Any] = data.get("metrics", {})
    if not metrics:
        return ""
    name, stated = next(iter(metrics.items()))
    metric = Metric.model_validate(stated)
    value, interval, count = metric_cells(metric)
    (params,), _ = split_params([(data["name"], data.get("params", {}))])
    return output.printable(f"{data['name']} {params}".rstrip() + f": {name} {value} {interval}, n = {count}")
