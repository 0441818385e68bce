"""The results of several jobs as Markdown tables: a row for each job, a column for each metric."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from html import unescape
from itertools import groupby
from typing import Any

from assay.service.cli import output
from assay.service.contract.results import EvaluationResult, Metric, Provenance, Results
from assay.service.contract.warning_codes import SEVERITIES, SEVERITY, WarningCode
from assay.service.fitted_text import fitted
from assay.service.metrics.arithmetic import arithmetic_settings, arithmetic_text
from assay.service.reports.comparisons import comparison_lines
from assay.service.reports.markdown_text import escape_markdown
from assay.service.reports.numbers import (
    IN_PERCENT,
    WITHOUT,
    arithmetic_lines,
    conditions,
    number,
    printable,
    split_params,
)

CELL, ESCAPED = re.compile(r"(?<!\\)\|"), re.compile(r"\\([!-/:-@\[-`{-~])")
# An evaluation with its distinguishing parameters, and one of its metrics.
Column = tuple[str, str]
Cells = dict[Column, Metric]


def markdown(results: Mapping[str, Results], metrics: Sequence[str] = ()) -> str:
    """A table for all jobs with the same columns, then notes on its rows; empty without such a metric.

    Proportions and ratios are in percent, values with their 95 % interval; the examples have a column.
    """
    evaluations = [(part.name, conditions(part)) for found in results.values() for part in found.evaluations]
    shown, shared = split_params(evaluations)
    texts = iter(shown)
    groups: dict[tuple[Column, ...], dict[str, Cells]] = {}
    for name, found in results.items():
        cells: Cells = {}
        for part in found.evaluations:
            label = f"{part.name} {next(texts)}".strip()
            chosen = metrics or list(part.metrics)[:1]
            cells |= {(label, metric): part.metrics[metric] for metric in chosen if metric in part.metrics}
        if cells:
            groups.setdefault(tuple(cells), {})[name] = cells
    if not groups:
        return ""
    cells_of = [cells for rows in groups.values() for cells in rows.values()]
    methods = [metric.ci_method for cells in cells_of for metric in cells.values()]
    notes = "\n".join(f"- {_escaped(line)}" for line in [*shared, *_notes(results, methods)])
    return "\n\n".join([*(_table(columns, rows) for columns, rows in groups.items()), notes])


def readable(text: str) -> str:
    """Markdown as people read it on a terminal, its tables as wide as that; elsewhere the text itself."""
    if not sys.stdout.isatty():
        return text
    parts: list[str] = []
    for in_table, lines in groupby(text.rstrip().split("\n"), lambda line: line.startswith("|")):
        if in_table:
            header, _, *rows = [[_plain(cell) for cell in CELL.split(line)[1:-1]] for line in lines]
            parts.append(output.table(header, rows))
        else:
            parts += [fitted(_plain(line), sys.stdout) for line in lines]
    return "\n".join(parts) + "\n"


def _plain(text: str) -> str:
    return printable(unescape(ESCAPED.sub(r"\1", text.replace("**", ""))).strip())


def comparison_markdown(comparison: Mapping[str, Any]) -> str:
    """A comparison as a Markdown table, then notes."""
    legend, header, rows, notes = comparison_lines(comparison)
    lines = [f"| {' | '.join(map(_escaped, line))} |" for line in (header, *rows)]
    below = "\n".join(f"- {_escaped(line)}" for line in [*legend, *notes])
    return "\n".join([lines[0], "|" + " --- |" * len(header), *lines[1:], "", below])


def _table(columns: Sequence[Column], rows: Mapping[str, Cells]) -> str:
    first = next(iter(rows.values()))
    titles = [f"{column[0]}: {column[1]}{_unit(first[column])}" for column in columns]
    lines = [["job", *titles, "n"]]
    for name, cells in rows.items():
        counts = dict.fromkeys(str(metric.n) for metric in cells.values())
        lines.append([name, *(_cell(cells[column]) for column in columns), ", ".join(counts)])
    text = [f"| {' | '.join(map(_escaped, line))} |" for line in lines]
    return "\n".join([text[0], "| " + " | ".join(["---"] * (len(columns) + 2)) + " |", *text[1:]])


def _cell(metric: Metric) -> str:
    numbers = (metric.value, metric.ci_low, metric.ci_high)
    value, low, high = (number(each, metric.unit).removesuffix(" %") for each in numbers)
    if metric.ci_method == "exact":
        return value
    without = WITHOUT.get(metric.ci_method)
    return f"{value} ({without})" if without else f"{value} [{low}, {high}]"


def _unit(metric: Metric) -> str:
    return ", %" if metric.unit in IN_PERCENT else ""


def _escaped(cell: str) -> str:
    return escape_markdown(printable(cell))


def _notes(results: Mapping[str, Results], methods: Sequence[str]) -> list[str]:
    kinds = dict.fromkeys(method for method in methods if method not in WITHOUT)
    lines = [f"95 % intervals: {', '.join(kinds)}"] if kinds else []
    warned: dict[WarningCode, dict[str, None]] = {}
    for name, found in results.items():
        for warning in (*found.warnings, *(one for part in found.evaluations for one in part.warnings)):
            warned.setdefault(warning.code, {})[printable(name)] = None
    for code, names in sorted(warned.items(), key=lambda item: SEVERITIES.index(SEVERITY[item[0]])):
        lines.append(
            f"{SEVERITY[code]} {code}: {'every job' if len(names) == len(results) else '; '.join(names)}"
        )
    used = [found.provenance for found in results.values() if found.provenance is not None]
    machines = dict.fromkeys(
        f"{one.device.get('name')}, torch {one.packages.get('torch')}, {_arithmetic(one, found.evaluations)}"
        for found in results.values()
        if (one := found.provenance) is not None
    )
    lines += arithmetic_lines([part for found in results.values() for part in found.evaluations])
    days = dict.fromkeys(sorted(str(one.times.get("started_at"))[:10] for one in used))
    return [*lines, *([f"measured on {'; '.join(machines)}; {', '.join(days)}"] if used else [])]


def _arithmetic(found: Provenance, rows: Sequence[EvaluationResult]) -> str:
    execution = found.spec.get("execution", {"dtype": found.device.get("dtype")})
    return arithmetic_text(arithmetic_settings(execution, found.model_dump(), rows))
