"""The subcommands `study` and `studies`."""

from __future__ import annotations

import argparse

from assay.service.cli import studies
from assay.service.cli.arguments import Subcommands, actions_of, add_remote, count, json_argument

STUDY = "01jd3q0x5v8f7m2n9k4t6w1z0s"


def add_studies(subcommands: Subcommands) -> None:
    """Adds `study`, which runs a study from a file, and `studies` with its actions."""
    summary = "post a study (arms x seeds x evaluations), wait for it, and print the table of its arms"
    examples = "docs/studies.study.json --dry-run", "docs/studies.study.json --seeds 6 > table.md"
    parser = add_remote(subcommands, "study", studies.run, summary, *examples)
    parser.add_argument("file", metavar="FILE", help="the study as JSON or YAML; - reads standard input")
    parser.add_argument("--dry-run", action="store_true", help="plan and estimate, store nothing")
    parser.add_argument("--seeds", type=count, metavar="N", help="so many seeds, in place of the file's")
    parser.add_argument("--no-wait", action="store_true", help="print the id and return")
    parser.add_argument("--idempotency-key", help="repeating the call with this key gives the same study")
    json_argument(parser)
    summary = "list, watch, extend, cancel and resume studies"
    command = add_remote(subcommands, "studies", studies.list_all, summary)
    json_argument(command)
    _add_actions(actions_of(command))


def _add_actions(actions: Subcommands) -> None:
    listing = add_remote(actions, "list", studies.list_all, "list studies, newest first")
    json_argument(listing)
    made = {
        name: add_remote(actions, name, run, summary, STUDY + more)
        for name, run, summary, more in (
            ("show", studies.show, "show a study with its jobs", ""),
            ("watch", studies.watch, "follow a study to its end, and print its table", ""),
            ("results", studies.results, "show the results so far", " --format csv > results.csv"),
            ("extend", studies.extend, "add seeds to a study", " 3 4 5"),
            ("cancel", studies.cancel, "cancel the jobs of a study", ""),
            ("retry", studies.retry, "resume a study: queue its failed and canceled jobs again", ""),
            ("delete", studies.delete, "delete a study that has ended, with its jobs", ""),
        )
    }
    for parser in made.values():
        parser.add_argument("study", metavar="STUDY", help="study id")
    for name in ("show", "watch", "extend"):
        json_argument(made[name])
    made["results"].add_argument("--format", choices=["markdown", "json", "csv"], default="markdown")
    made["extend"].add_argument("seeds", metavar="SEED", nargs="+", type=_seed, help="the new seeds")


def _seed(text: str) -> int:
    if not text.isdecimal() or int(text[:20]) >= 2**63:
        raise argparse.ArgumentTypeError(f"{text!r} given; allowed: an integer from 0 to 2**63 - 1")
    return int(text)
