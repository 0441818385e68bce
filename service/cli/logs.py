"""The subcommands `status`, with its older names `watch` and `logs`, and `open`."""

from __future__ import annotations

import sys
import webbrowser
from collections.abc import Sequence
from urllib.parse import quote

from assay.service.cli import output
from assay.service.cli.arguments import (
    JOB,
    Subcommands,
    add_remote,
    full_argument,
    job_argument,
    json_argument,
)
from assay.service.cli.commands import OK, Options, connected, show, watch
from assay.service.cli.job_progress import headline
from assay.service.cli.progress_bars import to_second
from assay.service.cli.terminal import coloured
from assay.service.client import AssayClient
from assay.service.contract.errors import NoResults
from assay.service.contract.events import Event
from assay.service.contract.states import JobState
from assay.service.fitted_text import say, tell
from assay.service.reports.comparisons import warning_lines


def add_status(subcommands: Subcommands) -> None:
    """Adds `status` and `open`."""
    examples, older = (JOB, f"{JOB} --wait", f"{JOB} --log"), {"watch": "--wait", "logs": "--log"}
    parser = add_remote(
        subcommands, "status", status, "show or follow a job", *examples, topic="jobs", older=older
    )
    job_argument(parser)
    parser.add_argument("-f", "--follow", "--wait", dest="wait", action="store_true", help="go on to its end")
    parser.add_argument("--log", action="store_true", help="show what has happened, with times and warnings")
    full_argument(parser)
    json_argument(parser)

    summary = "open a job's page in the browser"
    parser = add_remote(subcommands, "open", open_page, summary, JOB, topic="jobs")
    job_argument(parser)


def status(options: Options) -> int:
    """Shows a job, its events, or how it goes on."""
    if options.log:
        return logs(options)
    return watch(options) if options.wait else show(options)


def logs(options: Options) -> int:
    """Prints a line per event, then the warnings of the results; with `--json` the events as JSON lines."""
    with connected(options) as client:
        said, ended = "", False
        for event in client.events(options.job, follow=options.wait):
            if event.type == "state":
                ended = JobState(event.data["state"]).terminal
            if options.json:
                sys.stdout.write(f"{event.model_dump_json()}\n")
            elif ended and event.type == "log":
                continue  # what a worker said before it learned of the end
            elif text := event_text(event, said):
                said = event.data["message"] if event.type == "log" else said
                say(f"{to_second(event.at)}  {text}")
            sys.stdout.flush()
        if options.json:
            return OK
        job = client.job(options.job)
        if not job.state.terminal:
            now = f": {job.message}" if job.message else ""
            say(output.printable(f"now {job.state.value}, {output.done(job)}{now}"))
        for line in _warnings(client, options.job):
            say(line)
    return OK


def event_text(event: Event, said: str = "") -> str:
    """An event as a line; empty for progress, and for the end: an event of its state came before."""
    data = event.data
    if event.type == "state":
        attempt = f", attempt {data['attempt']}" if data["attempt"] > 1 else ""
        error = data.get("error")
        why = str(error["message"] if error else data.get("message", ""))
        if error and error["type"] != data["state"] and not why.startswith(f"{error['type']}: "):
            why = f"{error['type']}: {why}"
        why = "" if why == said and not error else why
        return coloured(data["state"]) + output.printable(attempt + (f": {why}" if why else ""))
    if event.type == "log":
        return output.printable(data["message"])
    return headline(data) if event.type == "metric" else ""


def _warnings(client: AssayClient, job_id: str) -> Sequence[str]:
    try:
        results = client.results(job_id)
    except NoResults:
        return []
    found = [("", warning) for warning in results.warnings]
    return warning_lines(
        [*found, *((part.name, warning) for part in results.evaluations for warning in part.warnings)]
    )


def open_page(options: Options) -> int:
    """Opens the page of the job in the dashboard; its address is on standard output."""
    with connected(options) as client:
        address = f"{client.url}/jobs/{quote(client.job(options.job).id, safe='')}"
    sys.stdout.write(f"{address}\n")
    sys.stdout.flush()
    if not webbrowser.open(address):
        tell("no browser here: open the address in one")
    return OK
