"""Tables of examples in local folders: what `datasets` saves, and Parquet, CSV and JSON lines files.

Layouts of FOLDER, each with parts such as train, validation and test:

    dataset_dict.json, PART/state.json, PART/data-*.arrow     a DatasetDict of `save_to_disk`
    state.json, data-*.arrow                                  a Dataset of `save_to_disk`
    PART.csv, PART-00000-of-00002.parquet, data/PART.jsonl    files, in FOLDER or FOLDER/data; also .tsv

A folder without names of parts is one part. No script of a folder is run, and nothing is unpickled: pyarrow
reads the files, without the library `datasets`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Len, doc

from assay.service.contract.findings.data_findings import FileRead
from assay.service.contract.problems import nearest
from assay.service.submission.data_folders import is_ignored
from assay.workers.data.formats.dataset import CorruptData, MissingData, reason_of
from assay.workers.data.formats.delimited import Quoting
from assay.workers.data.formats.folders import check_inside, find_folder
from assay.workers.data.formats.sampling import held_out_split
from assay.workers.data.formats.table_files import (
    column_names,
    count_lines,
    count_rows,
    pyarrow,
    read_columns,
)

SUFFIXES = (".csv", ".json", ".jsonl", ".parquet", ".tsv")
TRAINING = ("train", "training")
EVALUATED = ("test", "validation", "valid", "val", "dev", "eval")
KNOWN_PART = re.compile(rf"({'|'.join((*TRAINING, *EVALUATED))})(?:[-_.].*)?", re.IGNORECASE)
SHARD = re.compile(r"(.+?)-\d+-of-\d+")
ONE = ""  # the name of the only part of a folder without parts

ColumnName = Annotated[str, Len(1, 200)]
PartName = Annotated[str, Len(1, 200)]
Splits = Literal["auto", "all"]
EvaluatedPart = Annotated[PartName | None, doc("part that is evaluated; test, else validation, if absent.")]
ClassSplits = Annotated[
    Splits,
    doc(
        'of a folder of one part, without a name or called train: "auto" keeps a fifth of each class, by '
        'hash, for evaluation; "all" takes every row for either.'
    ),
]


@dataclass(frozen=True)
class Table:
    """One part: its files in order, and how they are read."""

    name: str
    paths: tuple[Path, ...]
    quoting: Quoting | None = None

    def column(self, name: str, types: Callable[[Any], bool], wanted: str, parameter: str) -> list[Any]:
        """Values of a parameter's column, of `types` of pyarrow, in words `wanted`."""
        values: list[Any] = []
        for path in self.paths:
            table = read_columns(path, [name], parameter, self.quoting)
            kind = table.schema.field(name).type
            if not types(getattr(kind, "value_type", kind)):  # pandas' categories are numbers of texts
                raise CorruptData(f"{path}: column {name!r} is {kind}, {wanted} is wanted")
            try:
                values += table.column(name).to_pylist()
            except UnicodeDecodeError as error:
                raise CorruptData(f"{path}: column {name!r} is not UTF-8: {error}") from error
        return values

    def files(self, rows: int) -> list[FileRead]:
        """Rows of each file, and its lines where it is text."""
        counts = [rows] if len(self.paths) == 1 else [count_rows(path, self.quoting) for path in self.paths]
        return [
            {"file": path.name, "rows": count, "lines": count_lines(path)}
            for path, count in zip(self.paths, counts, strict=True)
        ]

    def where(self, row: int) -> str:
        """File and row of a row of the part, for messages; rows count from 0."""
        for path in self.paths:
            count = count_rows(path, self.quoting)
            if row < count:
                return f"{path} row {row} (the first is 0)"
            row -= count
        return f"{self.name} row {row} (the first is 0)"

    def ids(self, count: int) -> list[str]:
        """Id of each row: the part and the row's number."""
        part = self.name or "row"
        return [f"{part}/{row:07d}" for row in range(count)]


@dataclass(frozen=True)
class Parts:
    """A folder's parts by name, and the part that is read."""

    tables: Mapping[str, Table]
    chosen: Table
    rows: Callable[[Sequence[str], Sequence[int]], list[int]] | None
    folder: Path
    root: Path

    @property
    def training(self) -> Table:
        """The training part; without one, the part that is read."""
        return next((self.tables[name] for name in TRAINING if name in self.tables), self.chosen)


def find_parts(
    root: Path | None,
    folder: str,
    split: Literal["train", "test"],
    evaluated: str | None,
    splits: Splits,
    name: str,
    quoting: Quoting | None = None,
) -> Parts:
    """The parts of a folder.

    A single part, without a name or for training, is divided by a hash with the data set's `name`; with the
    splits "all" training and evaluation take every row.
    """
    root, where = find_folder(root, folder)
    tables = {part: Table(part, paths, quoting) for part, paths in _tables(where, root).items()}
    if evaluated is not None and evaluated not in tables:
        raise MissingData(_no_part(where, evaluated, tables))
    if len(tables) == 1 and evaluated is None and {ONE, *TRAINING}.issuperset(tables):
        (only,) = tables.values()
        place = 0 if split == "train" else 1
        half = None if splits == "all" else lambda ids, labels: held_out_split(name, ids, labels)[place]
        return Parts(tables, only, half, where, root)
    if split == "train":
        chosen = next((part for part in TRAINING if part in tables), None)
    else:
        chosen = evaluated or next((part for part in EVALUATED if part in tables), None)
    if chosen is None:
        raise MissingData(_no_part(where, "train" if split == "train" else "test", tables))
    return Parts(tables, tables[chosen], None, where, root)


def set_of_table(folder: Path) -> str | None:
    """The data set of a table in a folder, by default names of columns; None without a table."""
    try:
        first = next(iter(_tables(folder, folder.resolve()).values()))[0]
        columns = set(column_names(first))
    except CorruptData:
        return "text_table"
    except (MissingData, ValueError, StopIteration):
        return None
    if "image" in columns:
        return "image_table"
    return "document_table" if "text" in columns and "label" not in columns else "text_table"


def _no_part(where: Path, wanted: str, tables: Mapping[str, Table]) -> str:
    there = f"The part {wanted!r} is wanted, and {where} has {', '.join(map(repr, tables))}."
    if wanted in TRAINING:
        return f"{there} Training reads a part of that name."
    near = nearest(wanted, list(tables))
    guess = f" Did you mean {near!r}?" if near else ""
    return f"{there}{guess} Name the part to evaluate with the parameter evaluated."


def _tables(where: Path, base: Path) -> dict[str, tuple[Path, ...]]:
    if (where / "dataset_dict.json").is_file():
        parts = json_object(where / "dataset_dict.json").get("splits", [])
        if not isinstance(parts, list) or not all(isinstance(part, str) and _plain(part) for part in parts):
            raise CorruptData(f"{where / 'dataset_dict.json'} has no list of splits")
        return {part: _arrow_files(where / part, base) for part in parts}
    if (where / "state.json").is_file():
        return {ONE: _arrow_files(where, base)}
    found = _files(where, base)
    if not found:
        raise MissingData(
            f"No table in {where}. Wanted are files such as train.csv, test.jsonl or test.parquet"
            f" ({', '.join(SUFFIXES)}), or a folder that datasets.save_to_disk has written."
        )
    if not any(KNOWN_PART.fullmatch(part) for part in found):
        found = {ONE: [path for paths in found.values() for path in paths]}
    for part, paths in found.items():
        if len({path.suffix.lower() for path in paths}) > 1:
            names = ", ".join(path.name for path in paths)
            raise CorruptData(f"{where} has the part {part!r} in several formats: {names}; keep one")
    return {part: tuple(paths) for part, paths in found.items()}


def _files(where: Path, base: Path) -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for folder in (where, where / "data"):
        for path in sorted(folder.glob("*")):
            if path.suffix.lower() in SUFFIXES and path.is_file() and not is_ignored(path.name):
                check_inside(path, base)
                found.setdefault(_part_of(path), []).append(path)
        if found:
            return found
    return {}


def _part_of(path: Path) -> str:
    shard = SHARD.fullmatch(path.stem)
    stem = shard[1] if shard else path.stem
    known = KNOWN_PART.fullmatch(stem)
    return known[1].lower() if known else stem


def _arrow_files(where: Path, base: Path) -> tuple[Path, ...]:
    state = where / "state.json"
    if not state.is_file():
        raise MissingData(f"{state} not found: {where} is no folder that datasets.save_to_disk has written")
    listed = json_object(state).get("_data_files")
    names = [one.get("filename") if isinstance(one, dict) else None for one in listed or []]
    if not names or not all(isinstance(name, str) and _plain(name) for name in names):
        raise CorruptData(f"{state} lists no files of data")
    paths = tuple(where / str(name) for name in names)
    for path in (state, *paths):
        check_inside(path, base)
        if not path.is_file():
            raise MissingData(f"{path} not found, which {state} lists")
    return paths


def _plain(name: str) -> bool:
    return bool(name) and not set(name) & set("/\\\0") and name not in (".", "..")


def json_object(path: Path) -> Mapping[str, Any]:
    """The object in a JSON file; CorruptData without a readable object."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CorruptData(f"{path} cannot be read: {reason_of(error)}") from error
    if not isinstance(found, dict):
        raise CorruptData(f"{path} is no JSON object")
    return found


def texts_of(table: Table, column: str) -> list[str]:
    """The texts of a column."""
    arrow = pyarrow()
    values = table.column(
        column, lambda kind: arrow.types.is_string(kind) or arrow.types.is_large_string(kind), "text", "text"
    )
    for row, value in enumerate(values):
        if value is None:
            raise CorruptData(f"{table.where(row)}: column {column!r} has no text")
    return values


def rows_of(parts: Parts, ids: Sequence[str], labels: Sequence[int]) -> list[int]:
    """The rows that are read, of the part that is read."""
    chosen = list(range(len(ids))) if parts.rows is None else parts.rows(ids, labels)
    if not chosen:
        raise MissingData(f"{parts.chosen.paths[0].parent} has no rows for this part")
    return chosen
