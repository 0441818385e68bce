"""Text output of the service's answers."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from assay.service.catalog.catalog import load
from assay.service.catalog.schema_text import describe
from assay.service.cli.terminal import coloured, terminal_table
from assay.service.contract.errors import AssayError, ErrorDetail
from assay.service.contract.problems import Loc, path_text
from assay.service.contract.results import (
    Artifact,
    CurveBreakdown,
    EvaluationResult,
    Job,
    Metric,
    Results,
    Warning,
)
from assay.service.contract.summaries import JobSummary
from assay.service.contract.warning_codes import WarningMeaning
from assay.service.fitted_text import fitted, say
from assay.service.metrics.compare.bracket import bracket_line
from assay.service.reports.comparisons import comparison_screen, first_by_code, warned, warning_lines
from assay.service.reports.headline import cases
from assay.service.reports.numbers import (
    arithmetic_lines,
    clock,
    conditions,
    metric_cells,
    number,
    params_text,
    speed_text,
    split_params,
)
from assay.service.reports.numbers import printable as printable

MAX_LISTED = 12
_NUMBER = re.compile(r"-?|[-+]?[0-9.]+(e[-+]?[0-9]+)?( %)?")


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their longest cell, numbers right-aligned; on a terminal no wider than that."""
    lines = [list(header), *(list(map(printable, row)) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    right = [bool(rows) and all(_numeric(row[column]) for row in rows) for column in range(len(header))]
    if sys.stdout.isatty():
        return terminal_table(sys.stdout, header, lines[1:], right)
    return "\n".join(
        "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    )


def _fitted(text: str) -> str:
    return fitted(text, sys.stdout)


def _numeric(cell: str) -> bool:
    return _NUMBER.fullmatch(cell) is not None


def json_text(value: Any) -> str:
    """JSON with indents."""
    return json.dumps(value, indent=2, ensure_ascii=True)


def show(value: Any, text: str, *, as_json: bool) -> None:
    """Writes a value as JSON, or else its text, no wider than the terminal."""
    if as_json:
        sys.stdout.write(f"{json_text(value)}\n")
    else:
        say(text)


def jobs_table(jobs: Sequence[Job]) -> str:
    """A line per job."""
    names = ("ID", "KIND", "STATE", "DONE", "CLEAN", "WORST", "MODEL", "NAME")
    return table(names, [_job_cells(job, job.summary or JobSummary()) for job in jobs])


def _job_cells(job: Job, summary: JobSummary) -> tuple[str, ...]:
    clean, worst = (
        f"{number(one.value, 'proportion')}{one.at and f' at {one.at}'}"
        f"{' invalid' if summary.invalid_codes(one) else ''}"
        if one
        else "-"
        for one in (summary.clean, summary.worst)
    )
    return (
        job.id,
        job.kind,
        job.state.value,
        done(job),
        clean,
        worst,
        str(job.spec["model"]["name"]),
        job.name,
    )


def done(job: Job) -> str:
    """Progress as "120/360 examples", or "120 examples" without a known total."""
    of = "" if job.progress.total is None else f"/{job.progress.total}"
    return f"{job.progress.done}{of} {job.progress.unit}"


def job_text(job: Job) -> str:
    """All facts about a job but its spec."""
    lines = {
        "id": job.id,
        "name": job.name,
        "kind": job.kind,
        "state": job.state.value,
        "attempt": str(job.attempt),
        "done": done(job),
        "eta": None if job.progress.eta_seconds is None else f"{job.progress.eta_seconds:.0f} s",
        "speed": speed_text(job.progress),
        "queue position": None if job.queue_position is None else str(job.queue_position),
        "workers online": str(job.workers_online),
        "created": job.created_at,
        "started": job.started_at,
        "finished": job.finished_at,
        "deadline": job.deadline if job.finished_at is None else None,
        "message": job.message,
        "error": None if job.error is None else f"{job.error.type}: {job.error.message}",
    }
    return "\n".join(
        _fitted(f"{label:<15} {coloured(printable(text))}") for label, text in lines.items() if text
    )


def estimate_text(estimate: Mapping[str, Any]) -> str:
    """The estimated seconds of a dry run beside the maximum; services of earlier versions state neither."""
    seconds, most = estimate.get("seconds"), estimate.get("max_seconds")
    device, source = estimate.get("device", "any device"), estimate.get("seconds_from")
    given = "unknown" if seconds is None else f"{seconds:g} s of computing on {device}"
    reason = f" ({source})" if source else ""
    allowed = "no limit is known" if most is None else f"allowed: {most:.15g} s on {device}"
    return printable(f"estimate: {given}{reason}; {allowed}")


def cost_text(estimate: Mapping[str, Any]) -> str:
    """What an evaluation costs: examples, passes of the model, seconds and what they rest on."""
    counts = [
        f"{estimate[key]:,} {key.replace('_', ' ')}"
        for key in ("examples", "forward_passes", "backward_passes")
        if estimate.get(key) is not None
    ]
    work = f"at most {', '.join(counts)}" if counts else "not known before the data are read"
    if estimate.get("seconds") is None:
        return f"cost: {work}"
    device, source = estimate.get("device"), estimate.get("seconds_from")
    seconds = "under 1 s" if estimate["seconds"] < 1 else clock(estimate["seconds"])
    return f"cost: {work}: {seconds} of computing on {device} ({source})"


def data_lines(look: Mapping[str, Any]) -> Iterator[str]:
    """What a dry run found in a data set, a line each."""
    data = look["data"]
    name = f"{data['name']} {data['params']['folder']}, {look['split']}"
    if look["problem"]:
        state = "" if look["looked"] else "not looked at: "
        yield printable(f"data {name}: {state}{look['problem']}")
        return
    of = f"{look['decoded']} of {look['examples']}" if look["decoded"] < look["examples"] else "all"
    bad = f"; {look['unreadable_count']} cannot be read:" if look["unreadable_count"] else ""
    yield printable(f"data {name}: {look['examples']} examples, {of} looked at{bad}")
    for message in look["unreadable"]:
        yield printable(f"  {message}")
    if (more := look["unreadable_count"] - len(look["unreadable"])) > 0:
        yield f"  and {more} more that cannot be read"
    if look["empty_classes"]:
        yield printable(f"  classes without an example: {', '.join(look['empty_classes'])}")
    ignored = look["ignored"] or {"count": 0, "first": []}
    if ignored["count"]:
        dots = ", ..." if ignored["count"] > len(ignored["first"]) else ""
        shown = ", ".join(ignored["first"]) + dots
        yield printable(f"  ignored beside the images ({ignored['count']}): {shown}")
    yield from (printable(f"  {note}") for note in look["notes"])


def results_text(results: Results, *, full: bool) -> str:
    """All metrics with `full`; then clean accuracy, worst case and sentence, as far as there are any."""
    rows = [(case, row, name, *metric_cells(metric)) for case, row, name, metric in cases(results)]
    if full or not rows:
        parts = [results_table(results, every=full)]
    else:
        told = first_by_code(results)
        invalid = [one for one in told if one[1].severity == "invalid"]
        parts = [*_incomplete(results), *map(_fitted, warning_lines(invalid))]
        count = sum(len(_all_metrics(part)) for part in results.evaluations)
        parted = len(results.evaluations)
        whole = f"all {count} metrics of {parted} evaluation{'' if parted == 1 else 's'}"
        more = f"`assay results {results.job} --full` prints {whole}"
        parts.append(_fitted(more + (" and what each warning says" if told else "")))
    if rows:
        parts.append(table(("CASE", "EVALUATION", "METRIC", "VALUE", "95 % INTERVAL", "N"), rows))
    if rows:
        known = load()
        names = [(part.name, tuple(part.params.get("stages") or ())) for part in results.evaluations]
        for name, stages in dict.fromkeys(names):  # no other name says less of what is run
            if (threat := known.threat_of(name)) is not None and threat.search == "ensemble":
                ran = "its stages " + ", ".join(stages) if stages else known.find("attack", name).summary
                parts.append(_fitted(f"{name}: {ran}"))
    if rows and not full:
        parts += map(_fitted, warning_lines([one for one in told if one[1].severity != "invalid"]))
    return "\n".join([*parts, *filter(None, [_fitted(printable(results.headline))])])


def results_table(results: Results, *, every: bool = True) -> str:
    """A line per metric, or the first of each evaluation and a count; then shared parameters and warnings."""
    shown, shared = split_params([(part.name, conditions(part)) for part in results.evaluations])
    rows, left_out = [], 0
    for part, params in zip(results.evaluations, shown, strict=True):
        found = _all_metrics(part)
        listed = found if every else found[:1]
        left_out += len(found) - len(listed)
        codes = _codes(part.warnings)
        rows += [(part.name, params, name, *metric_cells(metric), codes) for name, metric in listed]
    header = ("EVALUATION", "PARAMS", "METRIC", "VALUE", "95 % INTERVAL", "N", "WARNINGS")
    parts = []
    if left_out:
        parts.append(f"{left_out} more metrics: `assay results {results.job} --full` prints them.")
    parts += [*shared, *map(printable, arithmetic_lines(results.evaluations))]
    parts += (printable(bracket_line(point)) for point in results.bracket)
    parts += _incomplete(results)
    return "\n".join([table(header, rows), *map(_fitted, [*parts, *warning_lines(warned(results))])])


def _incomplete(results: Results) -> list[str]:
    if results.error is not None:
        why = f"{results.error.type}: {results.error.message}"
        return [_fitted(printable(f"Not complete. The job failed: {why}"))]
    return [] if results.complete else ["Not complete: evaluations are missing."]


def _codes(warnings: Sequence[Warning]) -> str:
    return " ".join(dict.fromkeys(warning.code for warning in warnings))


def _all_metrics(evaluation: EvaluationResult) -> list[tuple[str, Metric]]:
    metrics = list(evaluation.metrics.items())
    # a curve of up to 64 steps is for the plot, CSV and JSON.
    for part in (part for part in evaluation.breakdown if not isinstance(part, CurveBreakdown)):
        metrics += [(f"{part.label}/{name}", m) for name, m in part.metrics.items()]
    return metrics


def comparison_table(comparison: Mapping[str, Any], *, full: bool = True) -> str:
    """As `comparison_screen`, in the terminal's width."""
    above, header, rows, below = comparison_screen(comparison, full=full)
    return "\n".join([*map(_fitted, above), table(header, rows), *map(_fitted, below)])


def artifacts_table(artifacts: Sequence[Artifact]) -> str:
    """A line per file."""
    sizes = ["expired" if item.expired else str(item.size) for item in artifacts]
    rows = [
        (item.name, size, item.media_type, item.sha256) for item, size in zip(artifacts, sizes, strict=True)
    ]
    return table(("NAME", "BYTES", "TYPE", "SHA256"), rows)


def catalog_table(components: Sequence[Mapping[str, Any]]) -> str:
    """A line per component."""
    rows = [(str(item["kind"]), str(item["name"]), str(item["summary"])) for item in components]
    return table(("KIND", "NAME", "SUMMARY"), rows)


def warnings_table(meanings: Iterable[WarningMeaning]) -> str:
    """A line per code."""
    rows = [(one.severity, one.code, ", ".join(one.where), _sentence(one)) for one in meanings]
    return table(("SEVERITY", "CODE", "WHERE", "CAUSE"), rows)


def _sentence(one: WarningMeaning) -> str:
    """The first sentence of a cause, without its full stop: "et al. 2020" ends none."""
    return re.split(r"\.(?= [A-Z]|$)", one.cause)[0]


def warning_text(one: WarningMeaning) -> str:
    """A code with its cause, evidence and remedy."""
    head = f"{one.code}: {one.severity}, on {', '.join(one.where)}"
    parts = [f"{part}: {getattr(one, part)}" for part in ("cause", "evidence", "remedy")]
    return "\n\n".join(map(_fitted, [head, *parts]))


def component_text(component: Mapping[str, Any]) -> str:
    """A component with a line per parameter."""
    properties = component["schema"].get("properties", {})
    required = component["schema"].get("required", [])
    rows = [
        (
            name,
            "required" if name in required else _default_text(name, part.get("default")),
            _allowed_text(part),
        )
        for name, part in properties.items()
    ]
    lines = [_fitted(f"{component['kind']} {component['name']}: {printable(component['summary'])}")]
    lines += [_fitted(printable(f"paper: {component['paper']}"))] if component.get("paper") else []
    lines += [table(("PARAMETER", "DEFAULT", "ALLOWED"), rows)] if rows else ["no parameters"]
    lines += [_fitted(printable(f"rule: {rule['message']}")) for rule in component["rules"]]
    return "\n".join(lines)


def _default_text(name: str, value: Any) -> str:
    text = params_text({name: value}).removeprefix(f"{name}=")
    return text if isinstance(value, float) else json.dumps(value)


def _allowed_text(schema: Mapping[str, Any]) -> str:
    if "component" in schema:
        return f"the name of a component of kind {schema['component']}, or an object with its params"
    return describe(schema)


def error_text(
    error: AssayError,
    where: Callable[[Loc], str] = lambda loc: "",
    order: Callable[[Loc], int] = lambda loc: 0,
) -> str:
    """The message, and a line per wrong field; without the message where it only repeats a field's."""
    ordered = sorted(error.details, key=lambda detail: order((*detail.loc,)))
    lines = [printable(where((*detail.loc,))) + detail_text(detail) for detail in ordered]
    word = coloured("error:", sys.stderr)
    if not lines:
        return f"{word} {printable(error.message)}"
    first = error.details[0]
    repeated = f"{path_text(first.loc)}: {first.message}"
    if error.message in (repeated, first.message):
        return "\n".join([f"{word} {lines[0]}", *(f"  {line}" for line in lines[1:])])
    if error.message.startswith(f"{repeated} (and "):
        more = error.message.removeprefix(repeated).strip(" ()").removeprefix("and ")
        rest = [] if more == f"{len(lines) - 1} more" else [f"({more})"]  # fields that are not listed
        return "\n".join([f"{word} {lines[0]}", *(f"  {line}" for line in [*lines[1:], *rest])])
    return "\n".join([f"{word} {printable(error.message)}", *(f"  {line}" for line in lines)])


def detail_text(detail: ErrorDetail) -> str:
    """One wrong field: `evaluations[0].params.epsilonn: unknown parameter; did you mean "epsilon"?`."""
    hint = "" if detail.nearest is None else f"; did you mean {detail.nearest!r}?"
    parts, given = [], detail.given
    # A rule across parameters says their values; given they are for programs.
    of_rule = isinstance(given, dict) and given and all("." in name for name in given)
    if given is not None and not of_rule:
        parts.append(f"given {json.dumps(given).removesuffix('.0')}")
    if isinstance(detail.allowed, list):
        more = ", ..." if len(detail.allowed) > MAX_LISTED else ""
        parts.append(f"allowed: {', '.join(map(str, detail.allowed[:MAX_LISTED]))}{more}")
    elif detail.allowed is not None and not isinstance(detail.given, dict):
        allowed = detail.allowed if isinstance(detail.allowed, str) else json.dumps(detail.allowed)
        parts.append(f"allowed: {allowed}")
    more = (" " if hint else "; ") + "; ".join(parts) if parts else ""
    return printable(f"{path_text(detail.loc)}: {detail.message}{hint}{more}")
