"""The subcommands that submit, follow, read and change jobs."""

from __future__ import annotations

from functools import partial
from typing import get_args

from assay.service.cli import commands, job_lists, logs
from assay.service.cli.arguments import (
    JOB,
    Subcommands,
    add,
    add_remote,
    count,
    format_argument,
    full_argument,
    job_argument,
    json_argument,
)
from assay.service.contract.states import JobState
from assay.service.contract.summaries import Sort
from assay.service.contract.verbs import VERBS


def add_submission(subcommands: Subcommands) -> None:
    """Adds `submit`."""
    parser = add_remote(
        subcommands,
        "submit",
        job_lists.submit,
        "post a job or a list of jobs; prints each id, or with --wait what came out",
        "evaluate.json --wait",
        "docs/models.jobs.json --wait > table.md",
        """echo '{"kind": "train", "model": {"name": "symvit"}, "data": {"name": "digits"},
              "recipe": {"name": "small_vit"}}' | assay submit - --dry-run""",
        topic="jobs",
        first="attack.yaml --wait",
        older={"run": "--wait"},
    )
    parser.add_argument(
        "file",
        metavar="FILE",
        help='the job as JSON or YAML, or a list: {"jobs": [...]} with optional "defaults" by kind; "@NAME"'
        " is the id of an earlier job; - reads standard input",
    )
    parser.add_argument(
        "--wait", "--watch", action="store_true", help="follow all to their end, and print their results"
    )
    parser.add_argument(
        "--metric",
        action="append",
        default=[],
        help="of a list: which metric to show, may be repeated (default: the first of each evaluation)",
    )
    parser.add_argument("--dry-run", action="store_true", help="validate and estimate, store nothing")
    parser.add_argument("--idempotency-key", help="repeating the call with this key gives the same jobs")
    full_argument(parser)
    json_argument(parser)


def add_reading(subcommands: Subcommands) -> None:
    """Adds `jobs`, `status` and `open`."""
    summary, example = "list jobs, newest first", "--tag demo --sort=-worst"
    parser = add_remote(subcommands, "jobs", commands.jobs, summary, example, topic="jobs")
    parser.add_argument("--state", choices=[state.value for state in JobState])
    parser.add_argument("--kind", choices=["train", "evaluate"])
    parser.add_argument("--model", help="catalog name of the model")
    parser.add_argument("--tag")
    parser.add_argument("--search", help="a part of the name, or the id")
    parser.add_argument("--study", help="id of a study")
    parser.add_argument(
        "--sort", choices=get_args(Sort), metavar="VALUE", help="descending with -: --sort=-worst"
    )
    parser.add_argument("--limit", type=count, default=50, help="how many (default: %(default)s)")
    json_argument(parser)

    logs.add_status(subcommands)


def add_results(subcommands: Subcommands) -> None:
    """Adds `results`, `compare`, `artifacts`, `download` and `catalog`."""
    summary = "show the results of a job so far"
    example = f"{JOB} --format csv > results.csv"
    parser = add_remote(
        subcommands, "results", commands.results, summary, example, topic="results", first="JOB"
    )
    job_argument(parser)
    full_argument(parser)
    format_argument(parser, "table", "md", "tex", "html", "csv", "json", default="table")

    _add_compare(subcommands)

    parser = add_remote(
        subcommands, "artifacts", commands.artifacts, "list the files of a job", JOB, topic="results"
    )
    job_argument(parser)
    json_argument(parser)

    summary = "download a file of a job and check its hash"
    example = f"{JOB} weights.safetensors --output models/"
    parser = add_remote(subcommands, "download", commands.download, summary, example, topic="results")
    job_argument(parser)
    parser.add_argument("name", metavar="NAME", help="the artifact's name")
    parser.add_argument(
        "-o", "--output", default=".", help="file, or folder with / at its end (default: this folder)"
    )

    summary = "list what jobs may name, or show one component"
    parser = add_remote(
        subcommands, "catalog", commands.catalog, summary, "attack", "attack pgd", topic="catalog"
    )
    parser.add_argument("kind", metavar="KIND", nargs="?", help="model, attack, data, recipe, ...")
    parser.add_argument("name", metavar="NAME", nargs="?", help="a component of that kind")
    json_argument(parser)

    summary = "list the warnings that results may have, or explain one; asks no service"
    parser = add(subcommands, "warnings", commands.warnings, summary, "", "below_chance", topic="catalog")
    parser.add_argument("code", metavar="CODE", nargs="?", help="code of a warning")
    json_argument(parser)


def _add_compare(subcommands: Subcommands) -> None:
    summary = "compare the results of jobs; the first is what the others are compared with"
    example = f"{JOB} 01jd3q0x5v8f7m2n9k4t6w1z0z"
    parser = add_remote(
        subcommands, "compare", commands.compare, summary, example, topic="results", first="JOB JOB"
    )
    parser.add_argument("jobs", metavar="JOB", nargs="+", help="two or more job ids")
    parser.add_argument(
        "--adjust",
        choices=["holm", "benjamini_hochberg"],
        default="holm",
        help="how p-values are adjusted for the number of tests",
    )
    told = "print every metric and warning of the table; md, csv and json have all"
    parser.add_argument("--full", action="store_true", help=told)
    format_argument(parser, "table", "md", "csv", "json", default="table")


def add_changing(subcommands: Subcommands) -> None:
    """Adds the verbs on a job, and `tag`."""
    example = f"{JOB} 01jd3q0x5v8f7m2n9k4t6w1z0z --add paper --remove draft"
    parser = add_remote(subcommands, "tag", commands.tag, "change the tags of jobs", example, topic="jobs")
    parser.add_argument("jobs", metavar="JOB", nargs="+", help="job ids")
    for name in ("add", "remove"):
        told = f"a tag to {name}; may be repeated"
        parser.add_argument(f"--{name}", metavar="TAG", action="append", default=[], help=told)
    for verb in VERBS:
        parser = add_remote(subcommands, verb.name, partial(commands.act, verb), verb.help, JOB, topic="jobs")
        job_argument(parser)
