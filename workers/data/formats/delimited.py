"""Cells of CSV and TSV files, with the line of each row: no row is lost, joined or filled up silently.

With the quoting `double` a cell may be in double quotes (RFC 4180). With `none` a quote is a character, as in
GLUE's TSV files.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from assay.workers.data.formats.dataset import CorruptData
from assay.workers.data.formats.text_files import read_text

Quoting = Literal["none", "double"]
DELIMITERS = {".csv": ",", ".tsv": "\t"}  # By suffix
QUOTING: dict[str, Quoting] = {".csv": "double", ".tsv": "none"}
NAMES = {",": ",", ";": ";", "\t": "tabs", "|": "|"}
# In a column of numbers.
ABSENT = frozenset({"", "NA", "N/A", "n/a", "NULL", "null", "NaN", "nan", "-nan", "-NaN", "#N/A"})
TRUTHS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
KEEP = 'or state "quoting": "none" where quotes are characters like others'

LISTED = 10  # lines in a message
MAX_VALUES = 1000  # of a column of few values


@dataclass(frozen=True)
class Delimited:
    """Cells of some columns as texts, and the file's number of lines."""

    columns: dict[str, list[str]]
    rows: int
    lines: int


def is_delimited(path: Path) -> bool:
    """Whether it is a CSV or TSV file, by its suffix."""
    return path.suffix.lower() in DELIMITERS


def header_of(path: Path, quoting: Quoting | None = None) -> list[str]:
    """Columns' names in the first nonempty line; a quoted name may hold a delimiter."""
    return first_row(path, quoting)[1]


def first_row(path: Path, quoting: Quoting | None = None) -> tuple[int, list[str]]:
    """The line of the columns' names, from 1, and the names; (1, []) without a row."""
    try:
        return next(((line, cells) for line, cells, _ in _rows(path, quoting)), (1, []))
    except CorruptData:
        line, names, _ = next(_rows(path, "none"))
        if len(names) == 1 and any(len(_split(names[0], other)) > 1 for other in NAMES):
            return line, names
        raise


def read_delimited(path: Path, columns: Sequence[str] | None, quoting: Quoting | None = None) -> Delimited:
    """The cells of some columns, or of all."""
    names: list[str] = []
    found: list[list[str]] = []
    suspects: list[tuple[int, list[list[str]]]] = []
    seen: list[set[str]] = []
    message, ragged = "", []
    delimiter, rows, chosen, last = DELIMITERS[path.suffix.lower()], 0, [0], 0
    for last, cells, raw in _rows(path, quoting):
        if not names:
            names, chosen = cells, [n for n, name in enumerate(cells) if columns is None or name in columns]
            found, seen = [[] for _ in chosen], [set() for _ in names]
            continue
        if len(cells) != len(names):
            ragged.append(last - len(raw) + 1)
            message = message or _ragged(path, ragged[0], cells, names, delimiter)
            continue
        if len(raw) == 1:
            for values, cell in zip(seen, cells, strict=True):
                if len(values) <= MAX_VALUES:
                    values.add(cell)
        elif (inside := _rows_inside(path, last, cells, raw, delimiter)) is not None:
            suspects.append((last - len(raw) + 1, inside))
        rows += 1
        for place, column in zip(chosen, found, strict=True):
            column.append(cells[place])
    if ragged:
        raise CorruptData(message + _others(ragged[1:]))
    _check_suspects(path, rows, suspects, seen)
    return Delimited({names[n]: column for n, column in zip(chosen, found, strict=True)}, rows, last)


def _rows(path: Path, quoting: Quoting | None) -> Iterator[tuple[int, list[str], list[str]]]:
    suffix = path.suffix.lower()
    plain = (quoting or QUOTING[suffix]) == "none"
    csv.field_size_limit(2**31 - 1)
    raw: list[str] = []

    def lines() -> Iterator[str]:
        for line in io.StringIO(read_text(path), newline=""):
            raw.append(line)
            yield line

    reader = csv.reader(
        lines(),
        delimiter=DELIMITERS[suffix],
        quoting=csv.QUOTE_NONE if plain else csv.QUOTE_MINIMAL,
        strict=True,
    )
    while True:
        raw.clear()
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise CorruptData(_unclosed(path, reader.line_num, len(raw), str(error))) from error
        if cells is None:
            return
        if cells:
            yield reader.line_num, cells, raw


def _unclosed(path: Path, line: int, length: int, message: str) -> str:
    first = line - length + 1
    if "end of data" in message:
        return f"{path} line {first}: a double quote is opened and never closed; close it, {KEEP}"
    begun = f" (the row begins in line {first})" if first != line else ""
    return (
        f"{path} line {line}: a cell in double quotes goes on behind its closing quote{begun}; write a quote"
        f" inside a cell twice, {KEEP}"
    )


def _ragged(path: Path, line: int, cells: Sequence[str], names: Sequence[str], delimiter: str) -> str:
    tail = " (the last is empty: the line ends with the delimiter)" if cells[-1] == "" else ""
    remedy = "a cell with the delimiter or a line break must be in double quotes"
    if delimiter == "\t":
        remedy = 'a cell cannot hold a tab or a line break, except in double quotes with "quoting": "double"'
    return (
        f"{path} line {line} has {len(cells)} cell{'s' * (len(cells) != 1)}{tail}, the first line names"
        f" {len(names)} columns, separated by {NAMES[delimiter]}; {remedy}"
    )


def _others(lines: Sequence[int]) -> str:
    shown = ", ".join(map(str, lines[:LISTED])) + (", ..." if len(lines) > LISTED else "")
    return f"; {len(lines)} more rows have another number of cells, in lines {shown}" if lines else ""


def _swallowed(path: Path, line: int, count: int) -> str:
    return (
        f"{path} line {line}: a cell in double quotes holds a delimiter and a line break, and seems to hold"
        f" the rows of {count} lines, as if its quote were a character of the text. Write quotes inside a"
        f" cell twice, {KEEP}"
    )


def _rows_inside(
    path: Path, last: int, cells: Sequence[str], raw: Sequence[str], delimiter: str
) -> list[list[str]] | None:
    if not any(delimiter in cell and len(cell.splitlines()) > 1 for cell in cells):
        return None
    if delimiter == "\t":
        raise CorruptData(_swallowed(path, last - len(raw) + 1, len(raw)))
    inside = [line.rstrip("\r\n").split(delimiter) for line in raw]
    return inside if all(len(line) == len(cells) for line in inside) else None


def _check_suspects(
    path: Path, rows: int, suspects: Sequence[tuple[int, list[list[str]]]], seen: Sequence[set[str]]
) -> None:
    """Refuse a cell with lines that are rows by themselves, with the values of columns of few values.

    A text may have commas and line breaks, but not lines that end like the file's rows.
    """
    most = min(MAX_VALUES, max(2, (rows - len(suspects)) // 2))
    few = [n for n, values in enumerate(seen) if 0 < len(values) <= most]
    for line, inside in suspects:
        if few and all(cells[n].strip('" ') in seen[n] for cells in inside for n in few):
            raise CorruptData(_swallowed(path, line, len(inside)))


def typed(cells: list[str]) -> Sequence[str | int | bool | float | None]:
    """A column as integers, truth values or decimals where all cells are, empty cells None; else texts."""
    there = {cell for cell in cells if cell not in ABSENT}
    if not there:
        return cells
    if all(map(WHOLE.fullmatch, there)):
        return [None if cell in ABSENT else int(cell) for cell in cells]
    if there <= TRUTHS.keys():
        return [TRUTHS.get(cell) for cell in cells]
    if all(map(DECIMAL.fullmatch, there)):
        return [None if cell in ABSENT else float(cell) for cell in cells]
    return cells


def separated_otherwise(path: Path, names: Sequence[str], wanted: str | None) -> str | None:
    """The error if line one has the wanted name, or any, between other delimiters."""
    own = DELIMITERS.get(path.suffix.lower())
    for other in NAMES if own is not None else ():
        if other != own and any(
            wanted in cells if wanted else cells for cells in (_split(name, other) for name in names)
        ):
            remedy = f"save it with {NAMES[str(own)]} between the cells"
            right = next((suffix for suffix, mark in DELIMITERS.items() if mark == other), None)
            remedy += f", or name it {right}" if right else ""
            form = f"a {path.suffix} file is by {NAMES[str(own)]}"
            return f"{path} is separated by {NAMES[other]}, {form}: {remedy}"
    return None


def _split(name: str, delimiter: str) -> list[str]:
    return [part.strip(' "') for part in name.split(delimiter)] if delimiter in name else []
