"""Columns of the files of tables: Arrow, Parquet, CSV and JSON lines; errors name the file.

Nothing is run or unpickled, and no other file is opened.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from assay.service.contract.problems import nearest
from assay.workers.data.formats.dataset import CorruptData, MissingData
from assay.workers.data.formats.delimited import (
    Quoting,
    header_of,
    is_delimited,
    read_delimited,
    separated_otherwise,
    typed,
)
from assay.workers.data.formats.text_files import content_lines, read_lines

JSON_TYPES: dict[type, str] = {str: "text", bool: "truth value", dict: "object", list: "list"}
INSTALL = "tables need the extra hf: pip install 'assay-robustness[hf]'"


def pyarrow() -> Any:
    """The library."""
    try:
        import pyarrow as library
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError as error:
        raise MissingData(INSTALL) from error
    return library


def column_names(path: Path, quoting: Quoting | None = None) -> list[str]:
    """The columns of a file."""
    if is_delimited(path):
        return header_of(path, quoting)
    if path.suffix.lower() in (".arrow", ".parquet"):
        return list(schema_of(path).names)
    return list(dict.fromkeys(name for _, row in _json_rows(path) for name in row))


def schema_of(path: Path) -> Any:
    """The columns of an Arrow or Parquet file and their types."""
    arrow = pyarrow()
    with _file_named(path, arrow):
        return _stream(path, arrow).schema if path.suffix == ".arrow" else arrow.parquet.read_schema(path)


def count_rows(path: Path, quoting: Quoting | None = None) -> int:
    """Rows of a file."""
    arrow = pyarrow()
    with _file_named(path, arrow):
        if path.suffix.lower() == ".parquet":
            return int(arrow.parquet.read_metadata(path).num_rows)
        if is_delimited(path):
            return read_delimited(path, (), quoting).rows
        if path.suffix == ".arrow":
            return int(_stream(path, arrow).read_all().num_rows)
        return sum(1 for _ in _json_rows(path))


def count_lines(path: Path) -> int | None:
    """Lines of a text file, up to its last character; None for other files."""
    if path.suffix.lower() in (".arrow", ".parquet"):
        return None
    return len(content_lines(path))


def read_columns(
    path: Path, columns: Sequence[str], parameter: str | None = None, quoting: Quoting | None = None
) -> Any:
    """Some columns as a table of pyarrow; CSV's for the parameter `text` are texts."""
    arrow = pyarrow()
    with _file_named(path, arrow):
        check_columns(path, column_names(path, quoting), columns, parameter)
        suffix = path.suffix.lower()
        if suffix == ".parquet":
            return arrow.parquet.read_table(path, columns=columns, memory_map=True)
        if suffix == ".arrow":
            table = _stream(path, arrow).read_all()
            table.validate(full=True)
            return table.select(list(columns))
        if is_delimited(path):
            cells = read_delimited(path, columns, quoting).columns
            kept = {name: cells[name] if parameter == "text" else typed(cells[name]) for name in columns}
            return arrow.table({name: arrow.array(values) for name, values in kept.items()})
        return arrow.table({name: _json_column(path, name, arrow) for name in columns})


@contextmanager
def _file_named(path: Path, arrow: Any) -> Iterator[None]:
    try:
        yield
    except CorruptData:
        raise
    except (arrow.ArrowException, OSError, OverflowError, UnicodeError) as error:
        message = str(error).strip().partition("\n")[0]
        raise CorruptData(f"{path} cannot be read: {message}") from error


def _stream(path: Path, arrow: Any) -> Any:
    return arrow.ipc.open_stream(arrow.memory_map(str(path)))


def _json_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line, object_pairs_hook=_object)
        except (ValueError, RecursionError) as error:
            raise CorruptData(f"{path} line {number} is no JSON: {error}") from error
        if not isinstance(row, dict):
            raise CorruptData(f"{path} line {number} is no JSON object: one row a line is wanted")
        yield number, row


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is there twice")
    return found


def _json_column(path: Path, name: str, arrow: Any) -> Any:
    """A column's values, which have one type; absent values are null."""
    first: tuple[int, str] | None = None
    values = []
    for number, row in _json_rows(path):
        value = row.get(name)
        values.append(value)
        if value is None:
            continue
        kind = JSON_TYPES.get(type(value), "number")
        first = first or (number, kind)
        if kind != first[1]:
            raise CorruptData(
                f"{path} line {number}: column {name!r} is {kind}, and {first[1]} in line {first[0]}; all"
                " values must have the same type"
            )
    return arrow.array(values)


def check_columns(
    path: Path, present: Sequence[str], wanted: Sequence[str], parameter: str | None = None
) -> None:
    """Refuse a file without a column that a parameter names."""
    for name in wanted:
        if present.count(name) > 1:
            raise CorruptData(f"{path} has {present.count(name)} columns {name!r}; one is wanted")
        if name not in present:
            if (other := separated_otherwise(path, present, name)) is not None:
                raise CorruptData(other)
            if f'"{name}"' in present:
                raise CorruptData(f'{path} has names in double quotes; state "quoting": "double"')
            near = nearest(name, list(present))
            remedy = f"; did you mean {near!r}?" if near else ""
            if parameter is not None and present:
                example = near or present[-1 if parameter == "label" else 0]
                member = f"{json.dumps(parameter)}: {json.dumps(example, ensure_ascii=False)}"
                remedy += f"; the data set's parameter {parameter} names another: {member}"
            raise CorruptData(f"{path} has no column {name!r}, only {', '.join(map(repr, present))}{remedy}")


def feature_names(path: Path, column: str) -> tuple[str, ...] | None:
    """Class names that `datasets` wrote with a column; None without any."""
    metadata = (schema_of(path).metadata or {}) if path.suffix.lower() in (".arrow", ".parquet") else {}
    try:
        features = json.loads(metadata[b"huggingface"])["info"]["features"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    return names_of_feature(features, column)


def names_of_feature(features: Any, column: str) -> tuple[str, ...] | None:
    """Class names of a column in the features that `datasets` writes; None without any."""
    try:
        names = features[column]["names"]
    except (KeyError, TypeError):
        return None
    return tuple(map(str, names)) if isinstance(names, list) else None
