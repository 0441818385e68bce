"""The subcommand `mirror`: jobs as runs of MLflow or Weights & Biases."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from assay.service.cli import commands, output
from assay.service.cli.arguments import JOB, Subcommands, add_remote, json_argument
from assay.service.cli.commands import Options, UsageError
from assay.service.client.mirrors import Mirrored
from assay.service.client.trackers import TrackerError
from assay.service.fitted_text import say, tell

# MLflow's own default waits for minutes when the address is wrong.
RETRIES = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2"}


def add_mirror(subcommands: Subcommands) -> None:
    """Adds `mirror`."""
    summary = "write jobs as runs to MLflow or Weights & Biases"
    examples = (
        f"{JOB} --to mlflow --tracking-uri http://127.0.0.1:5000",
        f"{JOB} --to wandb --project robustness --follow",
    )
    parser = add_remote(subcommands, "mirror", mirror, summary, *examples, topic="results")
    parser.add_argument("jobs", metavar="JOB", nargs="+", help="ids of jobs or studies")
    parser.add_argument("--to", choices=["mlflow", "wandb"], required=True)
    parser.add_argument("--tracking-uri", help="of MLflow (default: MLFLOW_TRACKING_URI)")
    parser.add_argument("--project", help="experiment of MLflow, project of wandb (default: assay)")
    parser.add_argument("--entity", help="user or team of wandb (default: from the login)")
    parser.add_argument("--report", action="store_true", help="save report.html with each job")
    parser.add_argument(
        "--follow", action="store_true", help="go on as evaluations finish, until all jobs have ended"
    )
    json_argument(parser)


def mirror(options: Options) -> int:
    """Writes the runs; a line for each."""
    for name, value in RETRIES.items():
        os.environ.setdefault(name, value)
    tell(opening(options.to, options.tracking_uri))
    try:
        with commands.connected(options) as client:
            found = client.mirror(
                options.jobs,
                options.to,
                tracking_uri=options.tracking_uri,
                project=options.project,
                entity=options.entity,
                report=options.report,
                follow=options.follow,
                callback=None if options.json else _say,
            )
    except (ImportError, ValueError) as error:
        raise UsageError(str(error)) from None
    except TrackerError as error:
        tell(f"error: {output.printable(str(error))}")
        return commands.UNREACHABLE
    if options.json:
        sys.stdout.write(output.json_text([vars(one) for one in found]) + "\n")
    for where in sorted({one.where for one in found}):
        tell(output.printable(f"written to {options.to}: {where}"))
    return commands.OK


def opening(tracker: str, tracking_uri: str | None) -> str:
    """What is said before the first run: to load MLflow and make its database takes some seconds."""
    place = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI", "")
    path = Path(place.removeprefix("sqlite:///"))
    new = tracker == "mlflow" and place.startswith("sqlite:///") and not path.exists()
    return f"opening {tracker}" + (
        f"; it makes the database {output.printable(str(path))} first" if new else ""
    )


def _say(one: Mirrored) -> None:
    say(f"{one.job} {one.state}: run {one.run}, {one.metrics} numbers")
    sys.stdout.flush()
