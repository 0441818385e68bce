"""What a check has found, and the file in which it is kept. Never imports torch."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, TypedDict

Kind = Literal["cuda", "emulated", "cpu"]
Value = int | float | str
CELL = " | "
Relation = Literal["at most", "at least", "exactly"]


class Row(TypedDict):
    """One measured value; `relation` and `bound` are None where it is only told.

    `case` names the cases that the value is of, where it is not of all.
    """

    what: str
    case: str | None
    value: Value
    relation: Relation | None
    bound: Value | None
    held: bool


class Key(TypedDict):
    """What a record holds for: with another source, torch or device the check runs again."""

    code: str
    torch: str
    device: str


class Machine(TypedDict):
    """What a run is made on. `torch` is the build, `gpus` the number that torch sees."""

    kind: Kind
    device: str
    gpus: int
    driver: str | None
    torch: str
    cuda: str | None
    commit: str | None


class Record(TypedDict):
    """The outcome of one check.

    `kind` is what it ran on: the CPU in place of a GPU where a dry run has no other. `why` is None where it
    passed. `seconds` are those of its parts, one after another, `planned` those that a part may take;
    `together` is the number of processes that could share the device; `finished` is a date in UTC.
    """

    check: str
    key: Key
    machine: Machine
    kind: Kind
    passed: bool
    why: str | None
    rows: list[Row]
    seconds: float
    planned: int
    parts: int
    together: int
    finished: str


def at_most(what: str, value: float, bound: float, case: str | None = None) -> Row:
    """A value that must not be above its bound; NaN is."""
    return Row(what=what, case=case, value=value, relation="at most", bound=bound, held=value <= bound)


def at_least(what: str, value: float, bound: float) -> Row:
    """A value that must not be below its bound; NaN is."""
    return Row(what=what, case=None, value=value, relation="at least", bound=bound, held=value >= bound)


def exactly(what: str, value: Value, bound: Value, case: str | None = None) -> Row:
    """A value that must be this one."""
    return Row(what=what, case=case, value=value, relation="exactly", bound=bound, held=value == bound)


def told(what: str, value: Value) -> Row:
    """A value that is held against nothing."""
    return Row(what=what, case=None, value=value, relation=None, bound=None, held=True)


def cell(table: str, line: str, column: str, value: Value) -> Row:
    """A value that the page shows in a table of lines and columns."""
    return told(CELL.join((table, line, column)), value)


def named(row: Row) -> str:
    """What a row is of, with its cases."""
    return row["what"] if row["case"] is None else f"{row['what']} ({row['case']})"


def in_words(row: Row) -> str:
    """A row as a sentence's part."""
    text = f"{named(row)}: {shown(row['value'])}"
    return text if row["relation"] is None else f"{text}, must be {row['relation']} {shown(row['bound'])}"


def shown(value: Value | None) -> str:
    """A value as people read it: floats with four digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def why_not(rows: Iterable[Row]) -> str | None:
    """The rows that were not held; None where all were, a reason where there are none."""
    rows = list(rows)
    if not rows:
        return "it measured nothing"
    return "; ".join(in_words(row) for row in rows if not row["held"]) or None


def save(record: Record, folder: Path, name: str | None = None) -> None:
    """Writes a record, of a part under the part's name; a reader finds the whole of it or the one before."""
    write_whole(path_of(name or record["check"], folder), json.dumps(record, indent=1, sort_keys=True) + "\n")


def load(name: str, folder: Path) -> Record | None:
    """The record of a check or part; None without one that can be read."""
    try:
        found: Record = json.loads(path_of(name, folder).read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and found.keys() == Record.__annotations__.keys() else None


def path_of(name: str, folder: Path) -> Path:
    """The file of a check's record."""
    return folder / f"{name}.json"


def write_whole(path: Path, text: str) -> None:
    """Replaces a file at once."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    with part.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def answer_of(text: str) -> dict[str, Any]:
    """What a check's process has left: `rows`, or `raised` and its error."""
    found: dict[str, Any] = json.loads(text)
    return found
