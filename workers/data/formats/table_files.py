"""Reads the files of tables with pyarrow: Arrow, Parquet, CSV and JSON lines; errors name the file.

Nothing in them is run or unpickled, and no file outside the named one is opened.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from assay.service.contract.problems import nearest
from assay.workers.data.formats.dataset import CorruptData, MissingData

INSTALL = "tables need the extra hf: pip install 'assay-robustness[hf]'"


def pyarrow() -> Any:
    """The library.

    Raises:
        MissingData: it is not installed; has the command.
    """
    try:
        import pyarrow as library
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError as error:
        raise MissingData(INSTALL) from error
    return library


def schema_of(path: Path) -> Any:
    """The columns of a file and their types.

    Raises:
        CorruptData: it cannot be read.
    """
    arrow = pyarrow()
    with _FileNamed(path, arrow):
        if path.suffix == ".arrow":
            return _stream(path, arrow).schema
        if path.suffix.lower() == ".parquet":
            return arrow.parquet.read_schema(path)
        return read_columns(path, None).schema


def count_rows(path: Path) -> int:
    """Rows of a file."""
    arrow = pyarrow()
    with _FileNamed(path, arrow):
        if path.suffix.lower() == ".parquet":
            return int(arrow.parquet.read_metadata(path).num_rows)
        return int(read_columns(path, None).num_rows)


def read_columns(path: Path, columns: Sequence[str] | None, parameter: str | None = None) -> Any:
    """Some columns of a file, or all, as a table of pyarrow.

    Raises:
        CorruptData: it cannot be read, or lacks a column; names it.
    """
    arrow = pyarrow()
    with _FileNamed(path, arrow):
        suffix = path.suffix.lower()
        if columns is not None and suffix in (".arrow", ".parquet"):
            check_columns(path, schema_of(path).names, columns, parameter)
        if suffix == ".parquet":
            table = arrow.parquet.read_table(path, columns=columns, memory_map=True)
        elif suffix == ".arrow":
            table = _stream(path, arrow).read_all()
            table.validate(full=True)
        elif suffix in (".csv", ".tsv"):
            table = arrow.csv.read_csv(
                path,
                parse_options=arrow.csv.ParseOptions(
                    delimiter="\t" if suffix == ".tsv" else ",", newlines_in_values=True
                ),
                convert_options=arrow.csv.ConvertOptions(strings_can_be_null=False),
            )
        else:
            table = arrow.Table.from_pylist(list(_lines(path)))
        if columns is None:
            return table
        check_columns(path, table.schema.names, columns, parameter)
        return table.select(list(columns))


class _FileNamed:
    """Names the file in errors of pyarrow."""

    def __init__(self, path: Path, arrow: Any) -> None:
        self._path, self._arrow = path, arrow

    def __enter__(self) -> None:
        """Nothing."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Raise `CorruptData` in place of an error of pyarrow or of the file."""
        if isinstance(error, self._arrow.ArrowException | OSError) and not isinstance(error, CorruptData):
            message = str(error).strip().partition("\n")[0]
            raise CorruptData(f"{self._path} cannot be read: {message}") from error


def _stream(path: Path, arrow: Any) -> Any:
    return arrow.ipc.open_stream(arrow.memory_map(str(path)))


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file of JSON lines."""
    with path.open(encoding="utf-8") as file:
        try:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                try:
                    row = json.loads(line)
                except ValueError as error:
                    raise CorruptData(f"{path} line {number} is no JSON: {error}") from error
                if not isinstance(row, dict):
                    raise CorruptData(f"{path} line {number} is no JSON object: one row a line is wanted")
                yield row
        except UnicodeDecodeError as error:
            raise CorruptData(f"{path} is not UTF-8: {error}") from error


def check_columns(
    path: Path, present: Sequence[str], wanted: Sequence[str], parameter: str | None = None
) -> None:
    """Refuse a file that lacks a column, which a parameter of the data set names.

    Raises:
        CorruptData: names file and column, and the columns that there are.
    """
    for name in wanted:
        if name not in present:
            near = nearest(name, list(present))
            remedy = f"; did you mean {near!r}?" if near else ""
            if parameter is not None and present:
                example = near or present[-1 if parameter == "label" else 0]
                remedy += (
                    f"; the data set's parameter {parameter} names another: {_member(parameter, example)}"
                )
            raise CorruptData(f"{path} has no column {name!r}, only {', '.join(map(repr, present))}{remedy}")


def _member(name: str, value: str) -> str:
    """A parameter in a spec: "text": "sentence"."""
    return f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}"


def feature_names(path: Path, column: str) -> tuple[str, ...] | None:
    """The class names that `datasets` has written with a column; None without any."""
    metadata = schema_of(path).metadata or {}
    try:
        features = json.loads(metadata[b"huggingface"])["info"]["features"]
    except (KeyError, TypeError, ValueError):
        return None
    return names_of_feature(features, column)


def names_of_feature(features: Any, column: str) -> tuple[str, ...] | None:
    """The class names of a column among the features that `datasets` writes; None without any."""
    try:
        names = features[column]["names"]
    except (KeyError, TypeError):
        return None
    return tuple(map(str, names)) if isinstance(names, list) else None
