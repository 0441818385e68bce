"""Parts of checks: a check is split to run side by side, and the rows of its parts become one table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.acceptance.checks import Check
from benchmarks.acceptance.record import Record, Row, why_not

# Of a dry run, which shares its processor with other tests: so many times the limit, and at most so many s.
DRY_PATIENCE, DRY_SECONDS = 3, 280


@dataclass(frozen=True)
class Part:
    """A part of a check, from 0; the whole of it where `count` is 1."""

    check: Check
    number: int = 0
    count: int = 1

    @property
    def name(self) -> str:
        """Of its record and its log."""
        return f"{self.check.name}-{self.number + 1}of{self.count}" if self.count > 1 else self.check.name

    def seconds(self, *, dry: bool = False) -> int:
        """The time that it may take: twice its share of the check's, because it shares the device."""
        seconds = min(self.check.seconds, math.ceil(2 * self.check.seconds / self.count))
        return min(DRY_PATIENCE * seconds, DRY_SECONDS) if dry else seconds


def parts_of(check: Check, together: int) -> list[Part]:
    """The parts of a check where so many processes run side by side."""
    count = 1 if check.alone else min(check.parts, together)
    return [Part(check, number, count) for number in range(count)]


def whole(records: Sequence[Record]) -> Record:
    """The record of a check from the records of its parts, in order."""
    rows = merged(record["rows"] for record in records)
    faults = [record["why"] for record in records if record["why"] not in (None, why_not(record["rows"]))]
    why = "; ".join(str(fault) for fault in dict.fromkeys(faults)) or why_not(rows)
    return {
        **records[0],
        "passed": why is None,
        "why": why,
        "rows": rows,
        "seconds": round(sum(record["seconds"] for record in records), 1),
        "finished": max(record["finished"] for record in records),
    }


def merged(tables: Iterable[Sequence[Row]]) -> list[Row]:
    """One table of several: counts are added, of bounded values the worst is kept."""
    rows: dict[str, Row] = {}
    for row in (row for table in tables for row in table):
        known = rows.get(row["what"])
        rows[row["what"]] = row if known is None else _together(known, row)
    return list(rows.values())


def _together(one: Row, other: Row) -> Row:
    if one["relation"] in ("at most", "at least"):
        return max(one, other, key=_badness)
    if isinstance(one["value"], int) and isinstance(other["value"], int):
        value = one["value"] + other["value"]
        cases = [row["case"] for row in (one, other) if row["case"]]
        held = one["relation"] is None or value == one["bound"]
        return Row(
            what=one["what"],
            case="; ".join(cases) or None,
            value=value,
            relation=one["relation"],
            bound=one["bound"],
            held=held,
        )
    return other if one["held"] and not other["held"] else one


def _badness(row: Row) -> float:
    value = float(row["value"])
    return math.inf if math.isnan(value) else value if row["relation"] == "at most" else -value
