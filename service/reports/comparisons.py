"""Warnings and comparisons of jobs as lines of a table, and significantly best numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from assay.service.contract.results import Results, Warning
from assay.service.contract.warning_codes import SEVERITIES
from assay.service.metrics.compare.comparison import ComparisonRow
from assay.service.metrics.statistics import multiple_tests
from assay.service.metrics.statistics.multiple_tests import Adjustment
from assay.service.reports.numbers import (
    WITHOUT,
    conditions,
    difference_bounds,
    number,
    printable,
    shown_params,
    split_params,
)
from assay.service.reports.tidy import comparison_key

TESTS = {
    "mcnemar": "McNemar",
    "sign_flip": "sign flip",
    "linearised": "linearised",
    "jackknife_t": "jackknife t",
    "price_bonett": "Price-Bonett",
}
FEW_WARNINGS = 3  # of a code, in a brief comparison; and evaluations of a warning
ADJUSTMENTS = {"holm": "Holm", "benjamini_hochberg": "Benjamini-Hochberg"}


def warning_lines(found: Sequence[tuple[str, Warning]]) -> list[str]:
    """A line per distinct warning, with the names of its first evaluations; the gravest first."""
    places: dict[tuple[str, str, str], dict[str, None]] = {}
    for place, warning in sorted(found, key=lambda item: SEVERITIES.index(item[1].severity)):
        places.setdefault((warning.severity, warning.code, warning.message), {})[place] = None
    lines = []
    for (severity, code, message), found_in in places.items():
        names = [*filter(None, found_in)]
        more = f" and {len(names) - FEW_WARNINGS} more" if len(names) > FEW_WARNINGS else ""
        where = ", ".join(names[:FEW_WARNINGS]) + more
        lines.append(printable(f"{severity} {code}{f' ({where})' if where else ''}: {message}"))
    return lines


def warned(results: Results) -> list[tuple[str, Warning]]:
    """Every warning with the name of its evaluation, and what tells the evaluation from its namesakes."""
    given = [(part.name, conditions(part)) for part in results.evaluations]
    names = [
        f"{name} {params}".strip() for (name, _), params in zip(given, split_params(given)[0], strict=True)
    ]
    own = zip(names, results.evaluations, strict=True)
    return [("", one) for one in results.warnings] + [
        (name, one) for name, part in own for one in part.warnings
    ]


def first_by_code(results: Results) -> list[tuple[str, Warning]]:
    """As `warned`, where each warning says what the first of its code and severity says."""
    first: dict[tuple[str, str], Warning] = {}
    return [(name, first.setdefault((one.severity, one.code), one)) for name, one in warned(results)]


def comparison_lines(
    comparison: Mapping[str, Any],
) -> tuple[list[str], tuple[str, ...], list[tuple[str, ...]], list[str]]:
    """A comparison: the jobs' letters, header, rows, and notes below."""
    letters = _letters(comparison)
    named = comparison.get("names", {})
    legend = [
        printable(f"{letter} = " + (f"{named[job]} (job {job})" if job in named else f"job {job}"))
        for job, letter in letters.items()
    ]
    rows, shared = _cells(comparison)
    two = len(letters) == 2  # The first job is in every pair.
    names = ("A", "B", "B - A") if two else ("Pair", "A", "Other", "Other - A")
    header = ("Evaluation", "Parameters", "Metric", *names, "95 % interval", *p_headers(comparison), "Test")
    warnings = warning_lines([("", Warning.model_validate(item)) for item in comparison["warnings"]])
    note = [printable(f"note: {comparison['note']}")] if comparison.get("note") else []
    own = [
        f"results of {letters[job]} have warnings: {', '.join(codes)}"
        for job, codes in comparison.get("result_warnings", {}).items()
    ]
    rows = [(*cells[:3], *cells[4:]) for cells in rows] if two else rows
    return legend, header, rows, [*shared, *note, *own, *warnings]


def comparison_screen(
    comparison: Mapping[str, Any], *, full: bool
) -> tuple[list[str], list[str], list[tuple[str, ...]], list[str]]:
    """A comparison for a terminal: lines with a summary, header and rows of a table, and lines below.

    Without `full` the first metric of each evaluation, and the first warnings of each code.
    """
    shown = comparison if full else brief(comparison)
    legend, header, rows, notes = comparison_lines(shown)
    heads = ["CONDITION", *(head.upper() for head in header[2:-3]), "P", "ADJ. P", "TEST"]
    short = [
        (" ".join(filter(None, row[:2])), *row[2:-4], row[-4].replace(" points", ""), *row[-3:])
        for row in rows
    ]
    above = [*legend, *comparison_summary(comparison), *_left_out(comparison, shown)]
    return above, heads, short, [", ".join(p_headers(comparison)), *notes]


def _left_out(comparison: Mapping[str, Any], shown: Mapping[str, Any]) -> list[str]:
    rows, warnings = (len(comparison[key]) - len(shown[key]) for key in ("rows", "warnings"))
    tested = [[row["test"] or {} for row in found["rows"]] for found in (comparison, shown)]
    told_p = [[test.get("adjusted_p_value") for test in tests] for tests in tested]
    small, told = (sum(p is not None and p < LEVEL for p in found) for found in told_p)
    parts = (
        [f"{rows} more metric{'s' * (rows > 1)}, {small - told} with adjusted p < {LEVEL}"] if rows else []
    )
    parts += [f"{warnings} more warning{'s' * (warnings > 1)}"] if warnings else []
    return [f"{'; '.join(parts)}: `--full`"] if parts else []


def brief(comparison: Mapping[str, Any]) -> dict[str, Any]:
    """A comparison with the first metric of each evaluation, and the first warnings of each code."""
    rows: dict[str, Any] = {}
    for row in comparison["rows"]:
        stated = [row[key] for key in ("evaluation", "params", "data", "protocol")]
        rows.setdefault(f"{stated} {row['values'][1]['job']}", row)
    warnings = [Warning.model_validate(warning) for warning in comparison["warnings"]]
    few, _ = first_of_each(sorted(warnings, key=lambda one: SEVERITIES.index(one.severity)))
    shown = [warning.model_dump(mode="json") for warning in few]
    return {**comparison, "rows": list(rows.values()), "warnings": shown}


def first_of_each(warnings: Sequence[Warning]) -> tuple[list[Warning], list[Warning]]:
    """The first few warnings of each code, and the others."""
    counts: Counter[str] = Counter()
    parts: tuple[list[Warning], list[Warning]] = [], []
    for warning in warnings:
        parts[counts[warning.code] >= FEW_WARNINGS].append(warning)
        counts[warning.code] += 1
    return parts


def comparison_summary(comparison: Mapping[str, Any]) -> list[str]:
    """The first row of each pair of jobs, and the row with the least adjusted p."""
    pairs: dict[str, list[tuple[float, tuple[str, ...]]]] = {}
    for row, cells in zip(comparison["rows"], _cells(comparison)[0], strict=True):
        p_value = (row["test"] or {}).get("adjusted_p_value")
        pairs.setdefault(cells[3], []).append((math.inf if p_value is None else p_value, cells))
    lines = []
    for pair, found in pairs.items():
        letter = pair.partition(" ")[0]
        for cells in dict.fromkeys([found[0][1], min(found, key=lambda one: one[0])[1]]):
            name, params, metric, _, first, second, difference, interval, _, adjusted, _ = cells
            told = f"{' '.join(filter(None, [name, params]))}: {metric} A {first}, {letter} {second}"
            least = "" if cells is found[0][1] else ", the least of these"
            lines.append(printable(f"{told}; {pair} {difference} {interval}, adjusted p {adjusted}{least}"))
    return lines


def _letters(comparison: Mapping[str, Any]) -> dict[str, str]:
    return {job: chr(ord("A") + index) for index, job in enumerate(comparison["jobs"])}


def _cells(comparison: Mapping[str, Any]) -> tuple[list[tuple[str, ...]], list[str]]:
    """The cells of each row, and the parameters that rows share."""
    letters, found = _letters(comparison), comparison["rows"]
    named = [
        (
            row["evaluation"],
            {
                **shown_params(row["evaluation"], row["params"], row["data"], row["protocol"]),
                "protocol": row["protocol"],
                "data": row["data"].get("name"),
            },
        )
        for row in found
    ]
    shown, shared = split_params(named)
    return [_comparison_cells(row, params, letters) for row, params in zip(found, shown, strict=True)], shared


def p_headers(comparison: Mapping[str, Any]) -> tuple[str, str]:
    """The tests and the adjustment of the p-values, as headers of their columns."""
    tests = [row["test"]["name"] for row in comparison["rows"] if row["test"]]
    names = ", ".join(dict.fromkeys(TESTS.get(name, name) for name in tests))
    adjust = comparison.get("adjust", "")
    how = f" ({ADJUSTMENTS.get(adjust, adjust)}, {len(tests)} tests)" if adjust else ""
    return (f"p ({names})" if names else "p"), f"Adjusted p{how}"


def _comparison_cells(row: Mapping[str, Any], params: str, letters: Mapping[str, str]) -> tuple[str, ...]:
    unit, (first, second), test = row.get("unit"), row["values"], row["test"]
    interval = difference_bounds(row["ci_low"], row["ci_high"], unit)
    over = over_common(row.get("common"))
    return (
        row["evaluation"],
        params,
        row["metric"],
        f"{letters[second['job']]} - {letters[first['job']]}",
        number(first["value"], unit),
        number(second["value"], unit),
        f"{number(row['difference'], unit, sign=True)} {over}".rstrip(),
        interval if row["ci_low"] is not None else WITHOUT.get(row.get("ci_method", ""), "-"),
        f"{test['p_value']:.3g}" if test else "-",
        f"{adjusted:.3g}" if (adjusted := (test or {}).get("adjusted_p_value")) is not None else "-",
        TESTS.get(test["name"], test["name"]) if test else "-",
    )


def over_common(common: int | None) -> str:
    """The examples of a difference, in words, where its values are over others too."""
    return "" if common is None else f"over {common:,} common example{'s' * (common != 1)}"


LEVEL = 0.05


def significantly_best(
    rows: Sequence[ComparisonRow], jobs: Sequence[str], adjust: Adjustment
) -> set[tuple[str, str]]:
    """Jobs and keys (`TidyRow.key`) of numbers significantly better than all other jobs'.

    `rows`: of all pairs of jobs, with p-values adjusted over all. A number that a job lacks has no best.
    """
    tests = [row.test.p_value for row in rows if row.test is not None]
    adjusted = iter(multiple_tests.ADJUSTMENTS[adjust](tests))
    wins: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        p_value = 1.0 if row.test is None else next(adjusted)
        if p_value > LEVEL or not row.difference:
            continue
        first, second = (value.job for value in row.values)
        second_wins = (row.difference > 0) == row.higher_is_better
        winner, loser = (second, first) if second_wins else (first, second)
        key = comparison_key(row.evaluation, row.params, row.data, row.protocol, row.metric)
        wins.setdefault((winner, f" {key}"), set()).add(loser)
    return {place for place, beaten in wins.items() if len(beaten) == len(set(jobs)) - 1}
