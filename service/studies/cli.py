"""The subcommands about studies: arms x seeds x evaluations as one thing."""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
from typing import Any

from assay.service.cli import commands, output
from assay.service.cli.arguments import (
    Subcommands,
    actions_of,
    add,
    add_remote,
    count,
    format_argument,
    json_argument,
    seed,
)
from assay.service.cli.commands import Options
from assay.service.cli.markdown import readable
from assay.service.cli.profiles import UsageError
from assay.service.cli.progress_bars import Bars, ProgressLine, Spinner
from assay.service.cli.spec_files import SpecFile
from assay.service.cli.spec_kinds import check_kind
from assay.service.client import AssayClient
from assay.service.contract.errors import NoResults
from assay.service.fitted_text import tell
from assay.service.reports.numbers import clock
from assay.service.studies.designs import cli as designs
from assay.service.studies.ready.gpu_hours import HOUR, GpuHours, gpu_hours, hours_text
from assay.service.studies.ready.ready_studies import read_study, ready_studies
from assay.service.studies.wire import GUESS, ArmEstimate, StudyDryRun, StudyStatus, StudySummary

STUDY = "01jd3q0x5v8f7m2n9k4t6w1z0s"


def add_commands(subcommands: Subcommands) -> None:
    """Adds `studies` with its actions."""
    summary = "post, list, watch, extend, cancel and resume studies"
    older = {"study": "run"}
    command = add_remote(
        subcommands, "studies", list_all, summary, "", "run FILE", topic="studies", older=older
    )
    json_argument(command)
    actions = actions_of(command)
    summary = "post a study (arms x seeds x evaluations), wait for it, and print the table of its arms"
    examples = "rpc_table2 --dry-run", "docs/studies.study.json --seeds 6 > table.md"
    parser = add_remote(actions, "run", run, summary, *examples)
    told = "the study as JSON or YAML; - reads standard input; a ready study's name; or a design's digest"
    parser.add_argument("file", metavar="FILE", help=told)
    parser.add_argument(
        "--design", metavar="DIGEST", help="refuse a study that is not this registered design"
    )
    told = "cut the study to a time such as 13m, by jobs that measure it: seeds, length of training, arms"
    parser.add_argument("--budget", metavar="TIME", type=_budget, help=told)
    parser.add_argument(
        "--dry-run", action="store_true", help="plan, estimate and tell GPU-hours, store no study"
    )
    parser.add_argument("--seeds", type=count, metavar="N", help="so many seeds, in place of the file's")
    parser.add_argument("--no-wait", action="store_true", help="print the id and return")
    parser.add_argument("--idempotency-key", help="repeating the call with this key gives the same study")
    json_argument(parser)
    designs.add_actions(actions)
    _add_actions(actions)


def _add_actions(actions: Subcommands) -> None:
    listing = add_remote(actions, "list", list_all, "list studies, newest first")
    ready = add(actions, "ready", list_ready, "list the ready studies: tables of the papers, for `run NAME`")
    for parser in (listing, ready):
        json_argument(parser)
    made = {
        name: add_remote(actions, name, run, summary, STUDY + more)
        for name, run, summary, more in (
            ("show", show, "show a study with its jobs", ""),
            ("watch", watch, "follow a study to its end, and print its table", ""),
            ("results", results, "show the results so far", " --format csv > results.csv"),
            ("extend", extend, "add seeds to a study", " 3 4 5"),
            ("cancel", cancel, "cancel the jobs of a study", ""),
            ("retry", retry, "resume a study: queue its failed and canceled jobs again", ""),
            ("delete", delete, "delete a study that has ended, with its jobs", ""),
        )
    }
    for name, parser in made.items():
        more = ", or digest of a design that no study was posted from" if name == "delete" else ""
        parser.add_argument("study", metavar="STUDY", help=f"study id{more}")
    for name in ("show", "watch", "extend"):
        json_argument(made[name])
    format_argument(made["results"], "md", "csv", "json", default=None, told="default: md")
    made["extend"].add_argument("seeds", metavar="SEED", nargs="+", type=seed, help="the new seeds")


def _budget(text: str) -> float:
    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)(s|m|h)?", text, re.ASCII)
    if found is None or float(found[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} given; allowed: a time such as 90s, 13m or 1.5h")
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2] or "s"]


def run(options: Options) -> int:
    """Posts a study, waits for its jobs, and prints the table of its arms."""
    if designs.is_digest(options.file):
        return _run_design(options)
    spec = read_study(options.file)
    with spec.pointing():
        check_kind(spec.value, "study", options.file)
    body: bytes | dict[str, Any] = spec.body
    if options.seeds is not None and isinstance(spec.value, dict):
        body = {**spec.value, "seeds": options.seeds}
    with commands.connected(options) as client:
        if options.budget is not None:
            with spec.pointing():
                client.measure_study(body)
        if options.dry_run:
            return _planned(client, spec, body, options)
        with spec.pointing():
            study = client.submit_study(
                body,
                idempotency_key=options.idempotency_key,
                design=options.design,
                budget=options.budget,
            )
        return _posted(client, study, options)


def _run_design(options: Options) -> int:
    changes = (options.seeds, options.design, options.budget)
    if options.dry_run or any(given is not None for given in changes):
        told = "--seeds, --budget, --dry-run and --design are of a FILE"
        raise UsageError(f"a registered design runs as it is: {told}")
    with commands.connected(options) as client:
        study = client.submit_design(options.file, idempotency_key=options.idempotency_key)
        return _posted(client, study, options)


def _planned(client: AssayClient, spec: SpecFile, body: bytes | dict[str, Any], options: Options) -> int:
    with spec.pointing():
        planned = client.plan_study(body, design=options.design, budget=options.budget)
    with Spinner(lines=False) as waiting:
        waiting.tell("counting the operations of the models")
        hours = gpu_hours(planned)
    value = planned.model_dump(mode="json") | {"gpu_hours": dataclasses.asdict(hours)}
    _show(options, value, plan_text(planned, hours))
    return commands.OK


def _posted(client: AssayClient, study: StudyStatus, options: Options) -> int:
    designs.tell_fixing(study.fixing)
    if options.no_wait:
        _say(study.id)
        tell(f"{study.state.value}; follow it with: assay studies watch {study.id}")
        return commands.OK
    sys.stderr.write(f"study {study.id}: {study.progress.total} jobs\n")
    return _followed(client, study.id, options)


def list_all(options: Options) -> int:
    """Lists studies, newest first."""
    with commands.connected(options) as client:
        listed = list(client.studies())
    _show(options, [one.model_dump(mode="json") for one in listed], studies_table(listed))
    return commands.OK


def list_ready(options: Options) -> int:
    """Lists the ready studies."""
    ready = ready_studies()
    rows = [(name, str(len(one["arms"])), str(one["seeds"]), one["name"]) for name, one in ready.items()]
    _show(options, ready, output.table(("NAME", "ARMS", "SEEDS", "WHAT"), rows))
    return commands.OK


def show(options: Options) -> int:
    """Shows a study with its jobs."""
    with commands.connected(options) as client:
        study = client.study(options.study)
    _show(options, study.model_dump(mode="json"), study_text(study))
    return commands.OK


def watch(options: Options) -> int:
    """Follows a study to its end, and prints the table of its arms."""
    with commands.connected(options) as client:
        return _followed(client, options.study, options)


def results(options: Options) -> int:
    """Shows the results so far."""
    with commands.connected(options) as client:
        if options.format == "json":
            _say(output.json_text(client.study_results(options.study).model_dump(mode="json")))
        else:
            table = client.study_table(options.study, options.format or "md")
            sys.stdout.write(table if options.format else readable(table))
    return commands.OK


def extend(options: Options) -> int:
    """Adds seeds; prints what the study then is."""
    with commands.connected(options) as client:
        before = client.study(options.study).seeds
        study = client.extend_study(options.study, options.seeds)
    if there := sorted({*before} & {*options.seeds}):
        added = len({*options.seeds} - {*before}) or "none"
        tell(f"the study has the seeds {', '.join(map(str, there))} already; added: {added}")
    _show(options, study.model_dump(mode="json"), study_text(study))
    return commands.OK


def cancel(options: Options) -> int:
    """Cancels all jobs that have not ended."""
    with commands.connected(options) as client:
        sys.stderr.write(f"{client.cancel_study(options.study).state.value}\n")
    return commands.OK


def retry(options: Options) -> int:
    """Queues failed, canceled and timed-out jobs again."""
    with commands.connected(options) as client:
        sys.stderr.write(f"{client.retry_study(options.study).state.value}\n")
    return commands.OK


def delete(options: Options) -> int:
    """Deletes a study that has ended, with its jobs."""
    with commands.connected(options) as client:
        if designs.is_digest(options.study):
            client.delete_design(options.study)
        else:
            client.delete_study(options.study)
    return commands.OK


def _followed(client: AssayClient, study_id: str, options: Options) -> int:
    with Bars([study_id], sys.stderr) as bars:
        study = client.wait_study(study_id, callback=lambda now: bars.show({study_id: line_of(now)}))
    try:
        if options.json:
            _say(output.json_text(client.study_results(study_id).model_dump(mode="json")))
        else:
            sys.stdout.write(readable(client.study_table(study_id)))
    except NoResults:
        pass
    if study.state == "succeeded":
        return commands.OK
    line = f"study {study.id} {study.state.value}" + (f": {study.message}" if study.message else "")
    tell(f"{output.printable(line)}; resume it with: assay studies retry {study.id}")
    return commands.JOB_FAILED


def line_of(study: StudyStatus) -> ProgressLine:
    """What a line of progress shows of a study."""
    done, counts = study.progress, ", ".join(f"{count} {state}" for state, count in study.jobs.items())
    ended = study.state.terminal
    return ProgressLine(
        study.state.value,
        done.share,
        f"{done.done}/{done.total} jobs",
        done.done,
        "jobs",
        "",
        counts,
        ended,
    )


def studies_table(listed: list[StudySummary]) -> str:
    """A line per study."""
    rows = [
        (
            one.id,
            one.state.value,
            str(len(one.arms)),
            str(len(one.seeds)),
            str(sum(one.jobs.values())),
            one.name,
        )
        for one in listed
    ]
    return output.table(("ID", "STATE", "ARMS", "SEEDS", "JOBS", "NAME"), rows)


def study_text(study: StudyStatus) -> str:
    """All facts about a study but its spec, and a line per arm and seed."""
    done = study.progress
    lines = {
        "id": study.id,
        "name": study.name,
        "state": study.state.value,
        "done": f"{done.done}/{done.total} jobs, {done.share:.0%}",
        "created": study.created_at,
        "message": study.message,
        "design": "" if study.fixing is None else study.fixing.text,
        "until": "" if study.until is None else study.until.text,
    }
    rows = [
        (
            arm.name,
            str(run.seed),
            f"{run.train_state} {run.train}" if run.train is not None else "-",
            f"{run.evaluate_state} {run.evaluate}",
        )
        for arm in study.runs
        for run in arm.runs
    ]
    facts = [f"{label:<15} {output.printable(text)}" for label, text in lines.items() if text]
    notes = [output.printable(f"note: {note}") for note in study.notes]
    return "\n".join([*facts, output.table(("ARM", "SEED", "TRAINING", "EVALUATION"), rows), *notes])


def plan_text(planned: StudyDryRun, hours: GpuHours) -> str:
    """The jobs of a study and the time that they would take: every column is over all its seeds.

    Jobs on a CPU that no earlier job has measured take what timed passes on this machine say. Hours of GPUs
    stand below from an hour on, and where a GPU is asked for.
    """
    seeds = len(planned.spec["seeds"])
    works = [work for arm in planned.arms for work in (arm.train, arm.evaluate) if work is not None]
    asked = {planned.spec["execution"]["device"], *(work.get("device") for work in works)}
    guessed = any(not work["seconds_measured"] for work in works)
    by_core = guessed and "cuda" not in asked and hours.core is not None
    total_seconds, notes = planned.seconds, planned.notes
    if by_core:
        total_seconds, notes = 0.0, [note for note in notes if not note.startswith(GUESS)]

    def taken(arm: ArmEstimate, place: int) -> str:
        nonlocal total_seconds
        work = (arm.train, arm.evaluate)[place]
        measured = work is not None and work["seconds_measured"]
        seconds = None if work is None else work["seconds"]
        if by_core and not measured:
            seconds = hours.timed[arm.name][place]
        if seconds is None:
            return "unknown"
        if by_core and total_seconds is not None:
            total_seconds += seeds * seconds
        return ("" if measured or by_core else "~") + _duration(seeds * seconds)

    rows = [
        (
            arm.name,
            str(arm.jobs),
            f"{arm.shared} shared" if arm.shared else taken(arm, 0) if arm.trained else "-",
            taken(arm, 1),
        )
        for arm in planned.arms
    ]
    seconds = "unknown" if total_seconds is None else f"about {_duration(total_seconds)} of computing"
    earlier = " and earlier jobs" if any(work["seconds_measured"] for work in works) else ""
    seconds += f", by timed passes of the models on one core of this machine{earlier}" if by_core else ""
    jobs = f"{planned.jobs} jobs ({planned.trainings} trainings, {planned.evaluations} evaluations)"
    total = f"{jobs}: {seconds}; every column is over {seeds} seed{'' if seeds == 1 else 's'}"
    total += ", ~ is not measured" if any("~" in cell for row in rows for cell in row[2:]) else ""
    table = output.table(("ARM", "JOBS", "TRAINING", "EVALUATION"), rows)
    told = [output.printable(f"note: {note}") for note in notes]
    long = "cuda" in asked or total_seconds is None or total_seconds >= HOUR
    return "\n".join([table, total, *told, *(["", hours_text(hours)] if long else [])])


def _duration(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds < 100 else clock(seconds)


def _show(options: Options, value: object, text: str) -> None:
    output.show(value, text, as_json=options.json)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
