"""The page of a run's results, from what is stored of it alone. Never imports torch."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from benchmarks.acceptance.checks import Check
from benchmarks.acceptance.record import CELL, Machine, Record, Row, named, shown
from benchmarks.acceptance.results import Results, Table

COMMAND = "make accept-gpu"
NOTE = (
    "Written by `make accept-gpu` from `{stored}`; its next run replaces both. "
    "[Every value with its bound]({values}); a check fails where a value is not within its bound."
)
HEADS = ("check", "measured", "value", "bound", "held")
DEVICES = {"cuda": "the GPU", "emulated": "the emulated device", "cpu": "the CPU"}


def page(results: Results, checks: Sequence[Check]) -> str:
    """The page as Markdown; the same results give the same text.

    Args:
        results: Records of one machine, at least one, in any order.
        checks: All that there are, in order; those without a record are listed as not run.
    """
    found = {record["check"]: record for record in results["records"]}
    machine = next(found[check.name]["machine"] for check in checks if check.name in found)
    stored, table = "results-gpu.json", "results-gpu.csv"
    if machine["kind"] == "cuda":
        stored, table = f"benchmarks/{stored}", f"measurements/{table}"
    parts = [f"# Results on a GPU\n\n{NOTE.format(stored=stored, values=table)}\n"]
    parts.append(_head(machine, list(found.values()), checks))
    parts += [f"{note}\n" for note in results["notes"]]
    areas = dict.fromkeys(check.area for check in checks)
    parts += [_area(area, [check for check in checks if check.area == area], found) for area in areas]
    return "\n".join([*parts, *map(_table, results["tables"])])


def values(results: Results, checks: Sequence[Check]) -> str:
    """Every measured value as CSV, in the order of the checks; cells of tables are on the page alone."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADS)
    found = {record["check"]: record for record in results["records"]}
    for record in (found[check.name] for check in checks if check.name in found):
        writer.writerows(_value(record["check"], row) for row in record["rows"] if not _is_cell(row))
    return text.getvalue()


def _value(check: str, row: Row) -> list[str]:
    bound = "" if row["relation"] is None else f"{row['relation']} {shown(row['bound'])}"
    held = "" if row["relation"] is None else "yes" if row["held"] else "no"
    return [check, named(row), shown(row["value"]), bound, held]


def _is_cell(row: Row) -> bool:
    return row["what"].count(CELL) == 2


def _table(table: Table, level: str = "##") -> str:
    rule = " | ".join("---" for _ in table["columns"])
    lines = [" | ".join(map(_plain, cells)) for cells in table["rows"]]
    rows = [f"| {line} |" for line in (" | ".join(table["columns"]), rule, *lines)]
    return "\n".join([f"{level} {table['title']}\n", f"{table['text']}\n", *rows]) + "\n"


def _head(machine: Machine, records: Sequence[Record], checks: Sequence[Check]) -> str:
    failed = [
        check.name for check in checks for one in records if one["check"] == check.name and not one["passed"]
    ]
    missing = [check.name for check in checks if check.name not in {one["check"] for one in records}]
    commits = sorted({one["machine"]["commit"] or "not known" for one in records})
    dates = sorted({one["finished"] for one in records})
    lines = []
    if machine["kind"] != "cuda":
        lines.append("**A dry run: no GPU was used.** Sizes are tiny, and times mean nothing.\n")
    lines += [
        "| | |\n| --- | --- |",
        f"| device | {machine['device']} ({machine['gpus']} GPUs) |",
        f"| driver | {machine['driver'] or 'none'} |",
        f"| torch, CUDA | {machine['torch']}, {machine['cuda'] or 'none'} |",
        f"| commit | {', '.join(commits)} |",
        f"| date | {' to '.join(dict.fromkeys((dates[0], dates[-1])))} |",
        f"| checks | {len(records) - len(failed)} passed, {len(failed)} failed, {len(missing)} not run |",
        f"| time | {_time(records)} |",
    ]
    return "\n".join(lines) + "\n"


def _time(records: Sequence[Record]) -> str:
    text = f"{sum(one['seconds'] for one in records):.0f} s"
    together = max(one["together"] for one in records)
    return f"{text} of all processes, up to {together} side by side" if together > 1 else text


def _area(area: str, checks: Sequence[Check], found: dict[str, Record]) -> str:
    names = " ".join(check.name for check in checks)
    lines = [f"## {area}\n", f"`.venv/bin/python -m benchmarks.acceptance --again --only {names}`\n"]
    for check in checks:
        record = found.get(check.name)
        if record is None:
            lines.append(f"**{check.name}**: {check.title}. Not run.\n")
            continue
        state = "passed" if record["passed"] else f"FAILED: {record['why']}"
        limit = f"{record['seconds']:.0f} s of {record['planned']}"
        if record["parts"] > 1:
            limit = f"{record['seconds']:.0f} s in {record['parts']} parts of at most {record['planned']} s"
        lines.append(f"**{check.name}**: {check.title}; {limit} on {DEVICES[record['kind']]}; {state}.\n")
        lines += _matrices([row for row in record["rows"] if _is_cell(row)])
    return "\n".join(lines)


def _matrices(cells: Sequence[Row]) -> list[str]:
    """A table for each network: an attack in each line, an arithmetic or a library in each column."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    for row in cells:
        table, line, column = row["what"].split(CELL)
        found.setdefault(table, {}).setdefault(line, {})[column] = shown(row["value"])
    lines = []
    for table, body in found.items():
        columns = list(dict.fromkeys(column for values in body.values() for column in values))
        rows = [[line, *(values.get(column, "") for column in columns)] for line, values in body.items()]
        text = "Images/s; TFLOP/s; share of the limit. An empty cell was not measured."
        lines.append(_table(Table(title=table, text=text, columns=["attack", *columns], rows=rows), "###"))
    return lines


def _plain(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
