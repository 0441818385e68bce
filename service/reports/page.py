"""Reports on jobs: one HTML page that needs nothing else, Markdown, and LaTeX."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from textwrap import indent
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from assay.service.contract.results import EvaluationResult, Warning
from assay.service.contract.warning_codes import SEVERITIES
from assay.service.metrics.arithmetic import device_facts
from assay.service.metrics.compare.bracket import bracket_line
from assay.service.metrics.compare.comparison import Comparison
from assay.service.reports.comparisons import comparison_lines, warning_lines
from assay.service.reports.figures import Figure
from assay.service.reports.formats.csv_text import table_csv
from assay.service.reports.formats.latex import escape_latex, latex_differences, latex_table
from assay.service.reports.formats.markdown import markdown_list, markdown_table, markdown_texts
from assay.service.reports.numbers import (
    arithmetic_lines,
    metric_cells,
    number,
    params_text,
    printable,
    row_params,
    set_params,
    split_params,
)
from assay.service.reports.tables import Table
from assay.service.reports.tidy import ReportedJob

Cells = tuple[str, ...]
RESULTS_HEADER = ("Evaluation", "Parameters", "Metric", "Value", "95 % interval", "n", "Published")
PROVENANCE = (
    "model", "seed", "draws", "weights_sha256", "pulled", "data_sha256", "data_read", "code", "packages",
    "device", "design", "times",
)  # fmt: skip


@dataclass(frozen=True)
class JobReport:
    """What a report says."""

    jobs: Sequence[ReportedJob]  # reported, in order
    table: Table  # of all jobs
    comparison: Comparison | None = None  # of two to ten jobs; None for one
    figures: Sequence[Figure] = ()  # of the page
    # ISO 8601 in UTC.
    written: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    notes: Sequence[str] = ()  # left out of the report

    @property
    def title(self) -> str:
        """Of the document."""
        if len(self.jobs) == 1:
            return printable(f"Robustness of {self.jobs[0].label}")
        return f"Robustness of {len(self.jobs)} jobs"

    @property
    def sentences(self) -> list[tuple[str, str]]:
        """Label and headline of each job; the only job has no label."""
        labels = [""] if len(self.jobs) == 1 else [printable(job.label) for job in self.jobs]
        return [(label, job.results.headline) for label, job in zip(labels, self.jobs, strict=True)]


def html(report: JobReport) -> str:
    """A page with styles and plots inside; it loads nothing and has no script."""
    return (
        _environment()
        .get_template("report.html")
        .render(
            report=report,
            table=report.table,
            warnings=warnings_of(report.jobs),
            comparison=_comparison(report),
            jobs=[(job, *results_rows(job), provenance_lines(job), posted(job)) for job in report.jobs],
        )
    )


def html_table(table: Table) -> str:
    """A table as HTML, for another page."""
    return _environment().get_template("table.html").render(table=table)


def table_text(table: Table, format: str) -> str:  # noqa: A002 (the contract's name)
    """A table as "md", "tex" or "latex", "csv" or "html"."""
    writers = {"md": markdown_table, "tex": latex_table, "csv": table_csv, "html": html_table}
    return writers[format.replace("latex", "tex")](table)


def markdown(report: JobReport) -> str:
    """The report without plots."""
    said = [_heading(": ".join(filter(None, line))) for line in report.sentences]
    parts = [f"# {_heading(report.title)}", *said]
    if grave := [f"{severity} {line}" for severity, line in warnings_of(report.jobs) if severity != "note"]:
        parts += ["## Warnings", markdown_list(grave)]
    parts.append(markdown_table(report.table))
    told = [f"{severity} {line}" for severity, line in warnings_of(report.jobs) if severity == "note"]
    if lines := [*told, *report.notes]:
        parts += ["## Notes", markdown_list(lines)]
    if (found := _comparison(report)) is not None:
        legend, header, rows, notes = found
        parts += ["## Comparison", markdown_texts(header, rows, [*legend, *notes])]
    for job in report.jobs:
        parts += [f"## {_heading(job.label)}", markdown_texts(*results_rows(job))]
        parts.append(markdown_list([f"{name}: {text}" for name, text in provenance_lines(job)]))
    for job in report.jobs:
        title = f"The job as it was posted: {_heading(job.label)}"
        parts.append(f"<details><summary>{title}</summary>\n\n{indent(posted(job), ' ' * 4)}\n\n</details>")
    parts.append(f"Written {report.written}.")
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def latex(report: JobReport) -> str:
    r"""Tables for `\input`: the results, and the comparison."""
    said = [": ".join(filter(None, line)).rstrip(".") for line in report.sentences]
    caption = ". ".join(filter(None, [report.title, *said]))
    parts = [
        f"% {printable(report.title)}, written {report.written}. Needs \\usepackage{{booktabs}}.",
        r"\begin{table}[htbp]\centering\footnotesize\setlength{\tabcolsep}{4pt}",
        rf"\caption{{{escape_latex(caption)}}}",
        latex_table(report.table) + r"\end{table}",
    ]
    if (found := _comparison(report)) is not None:
        legend, header, rows, notes = found
        parts += [
            r"\begin{table}[htbp]\centering\scriptsize\setlength{\tabcolsep}{2pt}",
            r"\caption{Paired differences of the jobs}",
            latex_differences(header, rows, [*legend, *notes]) + r"\end{table}",
        ]
    return "\n".join(parts) + "\n"


def posted(job: ReportedJob) -> str:
    """The spec of a job with every default, and the spec of the job that trained its model, as JSON."""
    trained = {} if job.trained_by is None else {"trained_by": job.trained_by}
    text = json.dumps({"job": job.id, **job.spec, **trained}, indent=1)
    return text.replace("<", r"\u003c")


def results_rows(job: ReportedJob) -> tuple[Cells, list[Cells], list[str]]:
    """Header and a row for each metric with a value; shared parameters, and brackets.

    Warnings say why a metric has no value. Published numbers have a column where there are any.
    """
    parts = job.results.evaluations
    shown, shared = split_params([(part.name, set_params(row_params(part))) for part in parts])
    rows: list[Cells] = [
        (part.name, params, name, *metric_cells(metric), _references(part, name))
        for part, params in zip(parts, shown, strict=True)
        for name, metric in part.metrics.items()
        if metric.value is not None
    ]
    width = len(RESULTS_HEADER) - (not any(row[-1] for row in rows))
    brackets = [bracket_line(point) for point in job.results.bracket]
    notes = [*shared, *arithmetic_lines(parts), *brackets]
    return RESULTS_HEADER[:width], [row[:width] for row in rows], notes


def _references(part: EvaluationResult, name: str) -> str:
    unit = part.metrics[name].unit
    return "; ".join(
        f"{number(one.value, unit)} ({one.source}, protocol {one.protocol})"
        for one in part.reference
        if one.metric == name
    )


def provenance_lines(job: ReportedJob) -> list[tuple[str, str]]:
    """Names and texts of the facts that repeat a job's numbers."""
    lines = [("job", job.id), ("model", _model(job))]
    if (error := job.results.error) is not None:
        lines.append(("state", printable(f"not complete, the job failed: {error.type}: {error.message}")))
    elif not job.results.complete:
        lines.append(("state", "not complete: evaluations are missing"))
    if (found := job.results.provenance) is None:
        return [*lines, ("seed", str(job.spec["seed"]))]
    facts = found.model_dump(mode="json")
    facts["device"], prepared = device_facts(facts["device"])
    lines += [(name, printable(text)) for name, text in prepared.items()]
    return lines + [(name, _fact(facts[name])) for name in PROVENANCE if facts.get(name) is not None]


def _model(job: ReportedJob) -> str:
    named = [job.model, job.model_label] if job.model_label != job.model else [job.model]
    first, *more = (params_text({"": name})[1:] for name in named)
    return f"{first} ({more[0]})" if more else first


def _fact(value: Any) -> str:
    return printable(params_text(value) if isinstance(value, Mapping) else str(value))


def _heading(text: str) -> str:
    return markdown_list([text])[2:].strip()


def warnings_of(jobs: Sequence[ReportedJob]) -> list[tuple[str, str]]:
    """Severity and text of every distinct warning of the jobs and their evaluations, the gravest first."""
    found: list[tuple[str, Warning]] = []
    for job in jobs:
        found += [(job.label, warning) for warning in job.results.warnings]
        for part in job.results.evaluations:
            found += [(f"{job.label}: {part.name}", warning) for warning in part.warnings]
    lines = [line.partition(" ") for line in warning_lines(found)]
    assert all(severity in SEVERITIES for severity, _, _ in lines)
    return [(severity, text) for severity, _, text in lines]


def _comparison(report: JobReport) -> tuple[list[str], Cells, list[Cells], list[str]] | None:
    if report.comparison is None:
        return None
    names = {job.id: job.label for job in report.jobs}
    return comparison_lines(report.comparison.model_dump(mode="json") | {"names": names})


@cache
def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("assay.service.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["printable"] = printable
    return found
