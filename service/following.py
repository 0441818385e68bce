"""Follows a job for a person: over its events, or by polling a service that has none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from assay.service.client import AssayClient, BadAnswer
from assay.service.contract.errors import NotFound
from assay.service.contract.events import Event
from assay.service.contract.results import Job


def follow(client: AssayClient, job: Job, draw: Callable[[Job], None]) -> Job:
    """Draws the job at everything that has happened to it and will, and returns it as it ended."""
    if job.state.terminal:
        draw(job)
        return job
    try:
        now = begun(job)
        for event in client.events(job.id):
            now = applied(now, event)
            draw(now)
    except (NotFound, BadAnswer):
        # An older service, or a proxy that cannot stream. A job that is gone is missing below too.
        pass
    return client.wait(job.id, callback=draw)


def begun(job: Job) -> Job:
    """The job before its first event, as far as events change it."""
    progress = job.progress.model_copy(update={"done": 0, "eta_seconds": None})
    return job.model_copy(update={"progress": progress, "message": ""})


def applied(job: Job, event: Event) -> Job:
    """The job after an event."""
    data = event.data
    changes: dict[str, Any] = {}
    if event.type == "progress":
        changes = {"progress": data}
    elif event.type == "log":
        changes = {"message": data["message"]}
    elif event.type == "state":
        changes = {name: data[name] for name in ("state", "attempt", "message", "error")}
    return Job.model_validate(job.model_dump() | changes) if changes else job
