"""`assay evaluate` and `assay attack`: one model on one data set in one line, with or without a service."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from assay.service.catalog.schema_text import choices
from assay.service.cli import commands, output
from assay.service.cli.arguments import Subcommands, add, count, json_argument, number, seed
from assay.service.cli.commands import Options
from assay.service.cli.evaluation_service import (
    again_text,
    asked_service,
    beside_text,
    evaluation_service,
    interrupted_text,
)
from assay.service.cli.job_progress import follow_to_end
from assay.service.cli.progress_bars import Spinner
from assay.service.cli.usage import Parser
from assay.service.client import AssayClient
from assay.service.client.evaluation import (
    DEFAULT_SUITE,
    EXAMPLE,
    Request,
    check_device,
    check_request,
    complete_spec,
    measured_cost,
    program_first,
    same_job,
    unfinished,
    write_report,
)
from assay.service.client.example_model import EXAMPLE as EXAMPLE_MODEL
from assay.service.client.example_model import EXAMPLE_DATA
from assay.service.client.first_look import look_at_place
from assay.service.client.one_line import Subject, check_subject
from assay.service.contract.errors import InvalidSpec, NoResults, Unavailable
from assay.service.contract.extras import require
from assay.service.contract.problems import Problems, renamed
from assay.service.contract.results import Job
from assay.service.files.state_lock import DEFAULT_STATE
from assay.service.fitted_text import tell
from assay.service.reports.client import ENDINGS
from assay.service.submission.shape import execution_options

# Options of a job's `execution`: with a value, and without.
CHOSEN, SWITCHED = ("dtype", "screening", "compile"), ("channels_last", "capture")
# Fields of errors that are options of this name.
OPTIONS = (
    *("normalization", "image_size", "crop_fraction", "device", "state"),
    *("class_names", "labels", "report", "data", "limit", "weights"),
)
FORMS_OF_DATA = "a data set by name, NAME:PATH for one at a path, or the path of a folder FOLDER/CLASS/IMAGE"
EXAMPLES = (
    "example --report report.html",
    "timm:resnet50 --data imagenet:~/data/imagenet --suite standard --limit 1000",
    "model.pt2 --data ./photos --attack 'pgd epsilon=4/255 steps=20' --report report.html",
    "my_package.models:build --weights w.safetensors --data cifar10",
)


def add_evaluation(subcommands: Subcommands) -> None:
    """Adds `evaluate` and `attack`."""
    summary = "measure a model on a data set; starts a service for it unless one is named"
    first = "example"
    parser = add(subcommands, "evaluate", evaluate, summary, *EXAMPLES, topic="jobs", first=first)
    _add_model(parser)
    parser.add_argument(
        "--suite",
        action="append",
        default=[],
        help=f"may be repeated (default without --attack: {DEFAULT_SUITE})",
    )
    parser.add_argument(
        "--attack",
        action="append",
        default=[],
        metavar="'NAME P=V ...'",
        help="an attack or evaluation with its parameters, measured after clean accuracy; may be repeated",
    )
    _add_how(parser)

    summary = "attack one model: clean accuracy and one attack; says first what it will cost"
    example = "timm:resnet50 pgd epsilon=4/255 steps=40 --data imagenet:~/data/imagenet --limit 500"
    parser = add(subcommands, "attack", attack, summary, example, topic="jobs")
    _add_model(parser)
    parser.add_argument("attack", metavar="ATTACK", help="its name in the catalog: `assay catalog attack`")
    parser.add_argument(
        "params", metavar="P=V", nargs="*", default=[], help="its parameters, such as epsilon=8/255"
    )
    _add_how(parser)


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        metavar="MODEL",
        help=f"{EXAMPLE_MODEL}, which Assay brings; timm:NAME, hf:ORG/NAME (`assay pull` fetches them),"
        " model.pt2, model.onnx, PACKAGE.MODULE:FUNCTION, checkpoint:NAME, job:ID, or a model of the catalog"
        " with --weights",
    )
    parser.add_argument(
        "--data", metavar="DATA", help=f"{FORMS_OF_DATA} (default of {EXAMPLE_MODEL}: {EXAMPLE_DATA})"
    )
    parser.add_argument(
        "--crop-fraction",
        type=number,
        metavar="F",
        help="of image files: side of the centre crop / short side after resizing (default: the data set's,"
        " mostly 0.875); 1 for images that have the model's size already",
    )
    order = parser.add_mutually_exclusive_group()
    order.add_argument(
        "--class-names",
        metavar="A,B,...",
        help="classes of a folder or table in the order of the model's logits (default: numbers by value,"
        " other names as text)",
    )
    order.add_argument(
        "--labels",
        type=Path,
        metavar="FILE",
        help="a file with these names: one a line, or JSON (a list, or id2label)",
    )
    parser.add_argument(
        "--weights",
        help="of a function or of a model of the catalog: a safetensors file, job:ID, checkpoint:NAME",
    )
    parser.add_argument(
        "--normalization",
        help="that the model expects, such as imagenet: of a function, or a safetensors file from elsewhere",
    )
    parser.add_argument(
        "--image-size",
        type=count,
        metavar="N",
        help="pixels that a function's model takes (default: the data's)",
    )


def _add_how(parser: Parser) -> None:
    parser.gathers = True
    parser.add_argument("--limit", type=count, metavar="N", help="of the examples (default: all)")
    parser.add_argument("--seed", type=seed, default=0)
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--batch-size", type=count, metavar="N", help="(default: as many as are fast)")
    known = execution_options("evaluate")
    for name in CHOSEN:
        values = [value for value in choices(known[name]) if value]
        parser.add_argument(
            f"--{name}", choices=values, help=f"execution.{name} (docs/attacks.md, Arithmetic)"
        )
    for name in SWITCHED:
        words = name.replace("_", "-")
        parser.add_argument(f"--{words}", action="store_true", help=f"execution.{name} (there)")
    parser.add_argument("--name", help="of the job (default: the model)")
    parser.add_argument("--tag", action="append", default=[], help="of the job; may be repeated")
    parser.add_argument(
        "--report",
        type=Path,
        metavar="FILE",
        help=f"write a report; its ending is the format: {', '.join(ENDINGS)}",
    )
    parser.add_argument("--dry-run", action="store_true", help="check everything, and say what it would cost")
    parser.add_argument("--full", "--all", action="store_true", help="print all metrics, then the summary")
    json_argument(parser)
    where = parser.add_argument_group("where")
    where.add_argument(
        "--url", help="a running service (default: ASSAY_URL, the profile's, else one is started)"
    )
    where.add_argument("--profile", metavar="NAME", help="profile of `assay config` with a running service")
    where.add_argument(
        "--state", type=Path, help=f"start a service with its files here (default: {DEFAULT_STATE})"
    )
    where.add_argument(
        "--workers", type=count, metavar="N", help="its evaluators (default: one per core, up to 4)"
    )
    where.add_argument(
        "--data-root", type=Path, help="its folder with the data sets (default: ASSAY_DATA_ROOT)"
    )


def evaluate(options: Options) -> int:
    """Measures one model, and prints the results."""
    suites = options.suite or ([] if options.attack else [DEFAULT_SUITE])
    with _options_named("attack", "suite", *OPTIONS):
        try:
            return _measure(options, suites, options.attack)
        except InvalidSpec as error:
            if options.suite or options.attack:
                raise
            raise _without_choice(error) from None


def attack(options: Options) -> int:
    """Measures clean accuracy and accuracy under one attack."""
    with _options_named(*OPTIONS):
        return _measure(options, [], [" ".join([options.attack, *options.params])], measure_speed=True)


def _without_choice(error: InvalidSpec) -> InvalidSpec:
    """The error about the suite that is measured without a choice says how to choose."""
    more = f"; it is measured without --suite and --attack: name an attack, {EXAMPLE}"
    details = [
        one.model_copy(update={"message": one.message + more})
        if one.loc[0] == f"suite {DEFAULT_SUITE!r}"
        else one
        for one in error.details
    ]
    message = error.message
    if details and details[0] != error.details[0]:
        message = message.replace(error.details[0].message, details[0].message, 1)
    return InvalidSpec(message, details)


@contextmanager
def _options_named(*names: str) -> Iterator[None]:
    """Errors about these fields name the options: `--attack 'pgd eps=1'`."""

    def as_option(loc: list[str | int]) -> list[str | int]:
        loc = loc[1:] if loc[:2] == ["model", "weights"] else loc[:1] if loc[:1] == ["data"] else loc
        name, space, given = str(loc[0]).partition(" ") if loc else ("", "", "")
        return [f"--{name.replace('_', '-')}{space}{given}", *loc[1:]] if name in names else loc

    try:
        yield
    except InvalidSpec as error:
        raise renamed(error, as_option) from None


def _measure(
    options: Options, suites: list[str], evaluations: list[str], *, measure_speed: bool = False
) -> int:
    waiting, problems = Spinner(), Problems()
    if options.data_root is not None:
        os.environ["ASSAY_DATA_ROOT"] = str(options.data_root.absolute())
        if not options.data_root.is_dir():
            problems.add(("--data-root",), "there is no such folder", given=str(options.data_root))
    state = options.state or DEFAULT_STATE
    asked = asked_service(options, state)
    own = asked is None
    if own:
        require("a service on this machine", "service", "worker")
    for name, text in options.called.faults:
        problems.add((name or "usage",), text)
    if options.data is None and options.model != EXAMPLE_MODEL:
        message = f"--data is required; {EXAMPLE_MODEL} alone has data of its own"
        problems.add(("data",), message, allowed=FORMS_OF_DATA)
    given = options.model, options.weights, options.normalization, options.image_size
    subject = Subject(*given, tell=waiting.tell)
    data = options.data or EXAMPLE_DATA, options.crop_fraction, options.class_names, options.labels
    place = look_at_place(problems, *data, report=options.report, state=state if own else None)
    with problems.gathered():
        check_subject(subject)
    request = Request(subject, place, suites, evaluations, options.limit, _job_options(options))
    check_request(request, own=own, found=problems)
    signal.signal(signal.SIGTERM, _interrupt)  # so that the service that was started is stopped
    with (
        waiting,
        program_first(request, own=own) as ready,
        evaluation_service(options, asked, place, state, waiting) as client,
    ):
        left = unfinished(client) if own else []
        waiting.tell("checking the job")
        spec, found = complete_spec(client, ready)
        if own:
            check_device(spec, found["warnings"])
        waiting.end()
        _tell(output.cost_text(measured_cost(client, spec) if measure_speed else found["estimate"]))
        for warning in found["warnings"]:
            _tell(f"warning: {warning['message']}")
        if options.dry_run:
            return commands.say_data(client.dry_run(spec, decode=True)["data"])
        begun = _begun(client, left, spec)
        try:
            return _finish(options, client, begun, state if own else None, place.with_paths if own else str)
        except (KeyboardInterrupt, Unavailable):
            _tell(interrupted_text(begun.id, state if own else None, client.url))
            raise


def _begun(client: AssayClient, left: Sequence[Job], spec: Mapping[str, Any]) -> Job:
    job: Job | None = same_job(client, left, spec)
    if job is not None:
        _tell(f"job {job.id} goes on where an earlier call was interrupted")
    for other in left:
        if job is None or other.id != job.id:
            _tell(beside_text(client, other))
    return job or client.submit(spec)


def _finish(
    options: Options, client: AssayClient, job: Any, state: Path | None, told: Callable[[str], str] = str
) -> int:
    code = follow_to_end(client, job, sys.stderr, told=told)
    try:
        results = client.results(job.id)
    except NoResults:
        return code
    if options.json:
        sys.stdout.write(output.json_text(results.model_dump(mode="json")) + "\n")
    else:
        sys.stdout.write(output.results_text(results, full=options.full) + "\n")
    if options.report is not None:
        with Spinner(lines=False) as waiting:
            waiting.tell("writing the report")
            write_report(client, job.id, options.report)
        _tell(f"report: {options.report}")
    _tell(f"job {job.id}: {again_text(job.id, state, client.url)}")
    return code


def _job_options(options: Options) -> dict[str, Any]:
    execution: dict[str, Any] = {"device": options.device}
    if options.batch_size is not None:
        execution["batch_size"] = options.batch_size
    execution |= {name: value for name in (*CHOSEN, *SWITCHED) if (value := getattr(options, name))}
    named = {} if options.name is None else {"name": options.name}
    return {"seed": options.seed, "tags": options.tag, "execution": execution, **named}


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _tell(text: str) -> None:
    tell(output.printable(text))
