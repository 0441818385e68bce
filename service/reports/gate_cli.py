"""The subcommand `gate`: requirements on the results of a job, for continuous integration."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from assay.service.cli import commands, output
from assay.service.cli.arguments import JOB, Subcommands, add_remote, job_argument, json_argument
from assay.service.cli.commands import Options, UsageError
from assay.service.cli.job_progress import follow_to_end
from assay.service.client import AssayClient
from assay.service.contract.errors import NoResults
from assay.service.contract.results import Job, Results
from assay.service.contract.states import JobState
from assay.service.reports.gate import GateVerdict, Requirement, WrongRequirement, judged, read_requirement
from assay.service.reports.numbers import WITHOUT, number

MISSED = 1


def add_gate(subcommands: Subcommands) -> None:
    """Adds `gate`."""
    summary = "exit 1 unless the results of a job meet requirements"
    examples = (
        f"{JOB} --require 'pgd 8/255 top1 >= 45 %'",
        f"{JOB} --wait --require-file robustness.txt --junit robustness.xml",
    )
    parser = add_remote(subcommands, "gate", gate, summary, *examples, topic="results")
    job_argument(parser)
    parser.add_argument(
        "--require",
        action="append",
        default=[],
        metavar="REQUIREMENT",
        help="'EVALUATION [PARAMETER=VALUE ...] METRIC >= BOUND', also with >, <= and <; 8/255 alone is the"
        " epsilon; may be repeated. The end of the 95 %% interval that is nearer to the bound decides",
    )
    parser.add_argument(
        "--require-file",
        action="append",
        default=[],
        metavar="FILE",
        help="a requirement a line; # begins a comment, - is standard input; may be repeated",
    )
    parser.add_argument("--wait", action="store_true", help="wait for the end of the job first")
    parser.add_argument("--junit", metavar="FILE", help="write the verdicts as JUnit XML too")
    json_argument(parser)


def gate(options: Options) -> int:
    """Judges the requirements: 0 when all hold, 1 when one does not, 2 when one cannot be read."""
    texts = [*options.require, *(line for file in options.require_file for line in _lines(file))]
    if not texts:
        raise UsageError("no requirement given: give --require or --require-file")
    try:
        requirements = [read_requirement(text) for text in texts]
        with commands.connected(options) as client:
            job, results = _measured(client, options)
        verdicts = _verdicts(requirements, job, results)
    except WrongRequirement as error:
        raise UsageError(str(error)) from None
    passed = all(verdict.passed for verdict in verdicts)
    if options.junit is not None:
        _write_junit(Path(options.junit), job, verdicts)
    if options.json:
        shown: dict[str, Any] = {"job": job.id, "state": job.state.value, "passed": passed}
        found = output.json_text({**shown, "requirements": [verdict.model_dump() for verdict in verdicts]})
    else:
        found = output.table(
            ("VERDICT", "REQUIREMENT", "VALUE", "95 % INTERVAL", "N", "WHY"), list(map(_cells, verdicts))
        )
    sys.stdout.write(f"{found}\n")
    return commands.OK if passed else MISSED


def _measured(client: AssayClient, options: Options) -> tuple[Job, Results | None]:
    job: Job = client.job(options.job)
    if options.wait:
        follow_to_end(client, job, sys.stderr)
        job = client.job(options.job)
    try:
        return job, client.results(job.id)
    except NoResults:
        return job, None


def _verdicts(requirements: Sequence[Requirement], job: Job, results: Results | None) -> list[GateVerdict]:
    """The verdict on each requirement; none passes unless the job has succeeded."""
    error = f": {job.error.message}" if job.error else ""
    state = "" if job.state is JobState.SUCCEEDED else f"the job is {job.state.value}{error}"
    if results is None:
        reason = state or "the job has no results"
        return [GateVerdict(requirement=one.text, passed=False, reason=reason) for one in requirements]
    if state:
        # A row that is missing in a job without success was not measured; it need not be misspelt.
        results = results.model_copy(update={"complete": False})
    found = [judged(requirement, results) for requirement in requirements]
    if not state:
        return found
    return [
        verdict.model_copy(
            update={"passed": False, "reason": state if verdict.value is not None else verdict.reason}
        )
        for verdict in found
    ]


def _cells(verdict: GateVerdict) -> tuple[str, ...]:
    unit = verdict.unit
    interval = f"[{number(verdict.ci_low, unit)}, {number(verdict.ci_high, unit)}]"
    shown = WITHOUT.get(verdict.ci_method or "", interval if verdict.value is not None else "-")
    why = verdict.reason or " ".join(verdict.warnings)
    return (
        "pass" if verdict.passed else "FAIL",
        verdict.requirement,
        number(verdict.value, unit),
        shown,
        "-" if verdict.n is None else str(verdict.n),
        why,
    )


def _write_junit(target: Path, job: Job, verdicts: Sequence[GateVerdict]) -> None:
    failures = sum(not verdict.passed for verdict in verdicts)
    counts = {"tests": str(len(verdicts)), "failures": str(failures), "errors": "0", "skipped": "0"}
    suites = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(suites, "testsuite", {"name": f"assay gate {job.id}", **counts})
    for verdict in verdicts:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            {"classname": f"assay.{job.id}", "name": output.printable(verdict.requirement), "time": "0"},
        )
        _, _, value, interval, n, _ = _cells(verdict)
        measured = f"{value} {interval} n={n}"
        if not verdict.passed:
            message = output.printable(verdict.reason)
            failure = ElementTree.SubElement(case, "failure", {"message": message, "type": "requirement"})
            failure.text = measured
        ElementTree.SubElement(case, "system-out").text = measured
    ElementTree.indent(suites)
    target.parent.mkdir(parents=True, exist_ok=True)
    ElementTree.ElementTree(suites).write(target, encoding="utf-8", xml_declaration=True)


def _lines(file: str) -> list[str]:
    try:
        text = (sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()).decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{file}: this is no text in UTF-8") from None
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from None
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    return [line for line in lines if line]
