"""The page of a run's results, from its records alone. Never imports torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.acceptance.checks import Check
from benchmarks.acceptance.record import Machine, Record, Row, shown

COMMAND = "make accept-gpu"
NOTE = "Written by `make accept-gpu` from its records; its next run replaces it."
DEVICES = {"cuda": "the GPU", "emulated": "the emulated device", "cpu": "the CPU"}


def page(records: Iterable[Record], checks: Sequence[Check]) -> str:
    """The page as Markdown; the same records give the same text.

    Args:
        records: Of one machine, in any order.
        checks: All that there are, in order; those without a record are listed as not run.
    """
    found = {record["check"]: record for record in records}
    parts = [f"# Results on a GPU\n\n{NOTE}\n"]
    if not found:
        return "\n".join([*parts, _nothing(checks)])
    machine = next(found[check.name]["machine"] for check in checks if check.name in found)
    parts.append(_head(machine, list(found.values()), checks))
    areas = dict.fromkeys(check.area for check in checks)
    parts += [_area(area, [check for check in checks if check.area == area], found) for area in areas]
    return "\n".join(parts)


def _nothing(checks: Sequence[Check]) -> str:
    total = sum(check.seconds for check in checks)
    lines = [
        "**No GPU run has been made yet**: no GPU was available where this was written, and nothing below",
        "was run on one. On a machine with a GPU that torch can use, run:\n",
        f"```sh\n{COMMAND}\n```\n",
        f"It takes at most {-(-total // 60)} minutes on one GPU, goes on where it was if it is interrupted,",
        "and then replaces this page. Its dry run on the emulated device and the CPU is part of"
        " `make test-slow`.",
        "The limits are plans, not measurements. The checks:\n",
        "| area | check | what it holds | at most, s |\n| --- | --- | --- | --- |",
        *(f"| {one.area} | `{one.name}` | {one.title} | {one.seconds} |" for one in checks),
    ]
    return "\n".join(lines) + "\n"


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
        f"| time | {sum(one['seconds'] for one in records):.0f} s |",
    ]
    return "\n".join(lines) + "\n"


def _area(area: str, checks: Sequence[Check], found: dict[str, Record]) -> str:
    names = " ".join(check.name for check in checks)
    lines = [f"## {area}\n", f"`.venv/bin/python -m benchmarks.acceptance --again --only {names}`\n"]
    for check in checks:
        record = found.get(check.name)
        if record is None:
            lines.append(f"**{check.name}**: {check.title}. Not run.\n")
            continue
        state = "passed" if record["passed"] else f"FAILED: {record['why']}"
        spent = f"{record['seconds']:.0f} s of {record['planned']} on {DEVICES[record['kind']]}"
        lines.append(f"**{check.name}**: {check.title}; {spent}; {state}.\n")
        if record["rows"]:
            lines.append("| measured | value | bound | held |\n| --- | --- | --- | --- |")
            lines += [_row(row) for row in record["rows"]]
            lines.append("")
    return "\n".join(lines)


def _row(row: Row) -> str:
    bound = "" if row["relation"] is None else f"{row['relation']} {shown(row['bound'])}"
    held = "" if row["relation"] is None else "yes" if row["held"] else "**no**"
    cells = (_plain(text) for text in (row["what"], shown(row["value"]), bound, held))
    return f"| {' | '.join(cells)} |"


def _plain(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
