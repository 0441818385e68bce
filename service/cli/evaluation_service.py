"""The service that `assay evaluate` uses: named, running with the state folder, or started for the call."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from assay.service.cli.commands import Options, UsageError
from assay.service.cli.profiles import Chosen, chosen, key_of, saying_whose
from assay.service.cli.progress_bars import Spinner
from assay.service.client import DEFAULT_URL, AssayClient, Unreachable
from assay.service.client.data_place import DataPlace
from assay.service.client.evaluation import service_for
from assay.service.client.local import in_use
from assay.service.contract.results import Job
from assay.service.files.state_lock import holder_of, serving_text


def asked_service(options: Options, state: Path) -> Chosen | None:
    """The running service that is used: a named one, else the service that has the state folder."""
    if options.state is not None and (options.url or options.profile):
        raise UsageError("--state is of a service that is started; give it or an address, not both")
    asked = None if options.state is not None else chosen(options.url, options.profile)
    if asked is not None and asked.url_from != "default":
        return asked
    if (holder := holder_of(state)) is None:
        return None
    if not holder.address:
        raise Unreachable(in_use(holder))
    return Chosen("", "default", holder.address, f"it has the folder {state}", {}, "none")


@contextmanager
def evaluation_service(
    options: Options, asked: Chosen | None, place: DataPlace, state: Path, waiting: Spinner
) -> Iterator[AssayClient]:
    """A client of the asked service, else of a service started for the block."""
    if asked is not None:
        waiting.tell(f"using the service at {asked.url} ({asked.url_from})")
        with saying_whose(asked), service_for(place, url=asked.url, key=key_of(asked)) as client:
            yield client
        return
    waiting.tell(f"starting a service: its modules, database and containment; its state in {state}")
    # A dry run evaluates nothing.
    workers, prefetch = (1, False) if options.dry_run else (options.workers, True)
    with service_for(place, url=None, state=state, workers=workers, prefetch=prefetch) as client:
        yield client


def again_text(job_id: str, state: Path | None, url: str = DEFAULT_URL) -> str:
    """What shows the results of a job again; `state` is the folder of a service that ends with the call.

    `url`: of the service that goes on, without `state`.
    """
    if state is None:
        return f"`assay results {job_id}{_elsewhere(url)}` shows its results again"
    return f"to see its results again: {serving_text(state)}`assay results {job_id}{_elsewhere(DEFAULT_URL)}`"


def _elsewhere(url: str) -> str:
    """The option that names an address, where a command without it asks another service."""
    return "" if chosen().url.rstrip("/") == url.rstrip("/") else f" --url {shlex.quote(url)}"


def beside_text(client: AssayClient, job: Job) -> str:
    """That an unfinished job of an earlier call is computed beside the present job, and what ends it."""
    return (
        f"job {job.id} ({job.name}) of an earlier call is unfinished and is computed as well;"
        f" `assay cancel {job.id} --url {shlex.quote(client.url)}` ends it"
    )


def interrupted_text(job_id: str, state: Path | None, url: str = DEFAULT_URL) -> str:
    """What becomes of a job when the call is interrupted; arguments as of `again_text`."""
    if state is None:
        ends = f"`assay cancel {job_id}{_elsewhere(url)}` ends it"
        return f"interrupted: job {job_id} goes on at the service; {ends}"
    return f"interrupted: what was measured is kept in {state}, and the same line goes on with job {job_id}"
