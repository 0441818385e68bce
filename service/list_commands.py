"""What `assay run` does: posts a list of jobs, follows them, and prints their results as one table."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from assay.service.cli import commands, job_lists, markdown, output
from assay.service.cli.progress_bars import Bars
from assay.service.client import AssayClient
from assay.service.contract.errors import AssayError, ErrorDetail, InvalidState, NoResults
from assay.service.contract.problems import path_text
from assay.service.contract.results import Job, Results


def run(options: commands.Options) -> int:
    """Posts the jobs of a list, waits for all of them, and prints their results."""
    listed = job_lists.read(commands.spec_text(options.file))
    with commands.connected(options) as client:
        jobs = _submitted(client, listed, options.idempotency_key)
        ended = _followed(client, jobs)
        results = {name: found for name, job in ended.items() if (found := _results(client, job))}
    failed = {name: job for name, job in ended.items() if job.state != "succeeded"}
    if options.json:
        answer = {
            name: {
                "job": job.model_dump(mode="json"),
                "results": results[name].model_dump(mode="json") if name in results else None,
            }
            for name, job in ended.items()
        }
        sys.stdout.write(f"{output.json_text(answer)}\n")
    else:
        between = job_lists.referred(listed)
        shown = {name: found for name, found in results.items() if name not in between}
        sys.stdout.write(f"{markdown.markdown(shown, options.metric)}\n" if shown else "")
    for name, job in failed.items():
        reason = f"{job.error.type}: {job.error.message}" if job.error else job.message
        sys.stderr.write(f"{output.printable(f'{name}: job {job.id} {job.state.value}: {reason}')}\n")
    return commands.JOB_FAILED if failed else commands.OK


def _submitted(client: AssayClient, listed: list[job_lists.Job], key: str | None) -> dict[str, Job]:
    """Name to job. If one is refused, those before it are canceled: the list runs whole or not at all."""
    jobs: dict[str, Job] = {}
    for index, spec in enumerate(listed):
        ids = {name: job.id for name, job in jobs.items()}
        own = None if key is None else f"{key}-{index}"
        try:
            jobs[spec["name"]] = client.submit(job_lists.resolved(spec, ids), idempotency_key=own)
        except AssayError as error:
            _cancel(client, jobs)
            raise _placed(error, index, spec["name"]) from None
    return jobs


def _cancel(client: AssayClient, jobs: Mapping[str, Job]) -> None:
    for job in reversed(list(jobs.values())):
        try:
            client.cancel(job.id)
        except InvalidState:
            continue  # it has ended
        except AssayError as error:
            sys.stderr.write(f"cannot cancel job {job.id}: {output.printable(error.message)}\n")


def _placed(error: AssayError, index: int, name: str) -> AssayError:
    """The same error, about a job of the list."""
    details = [
        ErrorDetail.model_validate(detail.model_dump() | {"loc": ["jobs", index, *detail.loc]})
        for detail in error.details
    ]
    return type(error)(f"{path_text(('jobs', index))} {name!r}: {error.message}", details)


def _followed(client: AssayClient, jobs: Mapping[str, Job]) -> dict[str, Job]:
    """The jobs as they ended. Standard output is for the table alone."""
    now = {output.printable(name): job for name, job in jobs.items()}
    bars = Bars(list(now), sys.stderr)

    def draw(job: Job) -> None:
        now.update({label: job for label, one in now.items() if one.id == job.id})
        bars.draw(now)

    ended = {name: client.wait(job.id, callback=draw) for name, job in jobs.items()}
    bars.close()
    return ended


def _results(client: AssayClient, job: Job) -> Results | None:
    try:
        return client.results(job.id)
    except NoResults:
        return None
