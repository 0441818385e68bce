"""Labels of a table's rows, and the classes that they are of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from annotated_types import Len, MaxLen, doc

from assay.service.contract.problems import nearest
from assay.service.submission.class_order import NUMBER, WrongClasses, in_order, stated_names
from assay.workers.data.formats.dataset import CorruptData
from assay.workers.data.formats.folders import check_inside
from assay.workers.data.formats.table_files import feature_names, names_of_feature, pyarrow
from assay.workers.data.formats.tables import Parts, Table, json_object
from assay.workers.data.formats.text_files import read_lines

UNLABELLED = -1
INFO, NAMES = "dataset_info.json", "class_names.txt"
LISTED = 6  # In a message

ClassNames = Annotated[list[Annotated[str, Len(1, 200)]], MaxLen(100_000)]
TableClassNames = Annotated[
    ClassNames | None,
    doc(
        "names of the classes in order; those written by `datasets`, else the lines of class_names.txt, "
        "else the sorted labels of all parts, if absent."
    ),
]
ClassNamesFile = Annotated[
    Annotated[str, Len(1, 200)] | None,
    doc("a file in the folder with these names: one a line, or JSON (a list, or id2label)."),
]


@dataclass(frozen=True)
class LabelledRows:
    """Labels of a part; `labels` index `class_names`.

    `rarest`: of so many of the rarest classes the number of rows, and the first row; None where classes are
    stated.
    """

    class_names: tuple[str, ...]
    labels: list[int]
    rarest: Callable[[int], list[str]] | None = None

    @property
    def sorted_classes(self) -> bool:
        """Whether nothing but their sorted names gives the order of the classes."""
        return self.rarest is not None


def labels_of(
    parts: Parts, column: str, class_names: Sequence[str] | None, class_names_file: str | None = None
) -> LabelledRows:
    """The labels of the part that is read.

    The classes are stated by name or in a file, else written by `datasets`, else the lines of
    class_names.txt, else the labels of all parts in their order (`in_order`). Whole numbers are numbers of
    stated or written classes, or names where stated names are other numbers (0, 90, 180) and some label is no
    class's number. CorruptData of missing labels and other classes names all, and file, row and column of the
    first.
    """
    chosen = parts.chosen
    values, rarest = _values(chosen, column), None
    try:
        stated = stated_names(parts.folder, parts.root, class_names or None, class_names_file)
        names = tuple(stated) if stated is not None else _written_names(parts, column)
        if names is not None:
            numbers = _numbers(names, values, named=stated is not None)
        else:
            ordered, rarest = _sorted(parts, column, values)
            numbers, names = {value: place for place, value in enumerate(ordered)}, tuple(map(str, ordered))
    except WrongClasses as error:
        raise CorruptData(f"{chosen.paths[0]}: column {column!r}: {error}") from error
    if not numbers.keys() >= {*values}:
        raise _unknown(chosen, column, values, numbers, names)
    if len(names) < 2:
        raise CorruptData(
            f"{chosen.paths[0]}: column {column!r} has {len(names)} class, at least 2 are needed"
        )
    return LabelledRows(names, [numbers[value] for value in values], rarest)


def _sorted(parts: Parts, column: str, values: list[Any]) -> tuple[Sequence[Any], Callable[[int], list[str]]]:
    others = [one for one in parts.tables.values() if one is not parts.chosen]
    tables = [(parts.chosen, values), *((one, _values(one, column)) for one in others)]
    rows = Counter(value for _, found in tables for value in found)
    known = {value for value in rows if value not in (None, "", UNLABELLED)}
    texts = sum(isinstance(value, str) for value in known)
    if 0 < texts < len(known):
        raise CorruptData(f"{parts.chosen.paths[0]}: column {column!r} has numbers and texts")
    by_count = sorted(known, key=lambda value: (rows[value], str(value)))
    return in_order(known) if texts else sorted(known), partial(_rarest, rows, by_count, tables)


def _values(table: Table, column: str) -> list[Any]:
    types = pyarrow().types

    def usable(kind: Any) -> bool:
        texts = types.is_string(kind) or types.is_large_string(kind)
        return bool(texts or types.is_integer(kind) or types.is_boolean(kind))

    return table.column(column, usable, "whole numbers or texts", "label")


def _numbers(names: Sequence[str], values: Sequence[Any], *, named: bool) -> Mapping[Any, int]:
    places = {name: place for place, name in enumerate(names)}
    if named and all(NUMBER.fullmatch(name) for name in names):
        whole = {int(name): place for name, place in places.items()}
        given = {value for value in values if type(value) is int and value != UNLABELLED}
        if max(given, default=0) >= len(names) and given <= whole.keys():
            return {**places, **whole}
    return {**places, **{place: place for place in range(len(names))}}


def _unknown(
    table: Table, column: str, values: Sequence[Any], numbers: Mapping[Any, int], names: Sequence[str]
) -> CorruptData:
    rows = {value: row for row, value in reversed([*enumerate(values)]) if value not in numbers}
    first = next(value for value in values if value in rows)
    others = sorted(str(value) for value in rows if value not in (first, None, UNLABELLED))
    shown = ", ".join(names[:LISTED]) + (", ..." if len(names) > LISTED else "")
    where = f"{table.where(rows[first])}: column {column!r}"
    message = f"{where} is {first!r}, none of the {len(names)} classes ({shown})"
    if near := nearest(first, names):
        message += f"; did you mean {near!r}?"
    if first == UNLABELLED:
        message += "; -1 stands for no label: evaluate another part"
    if others:
        more = ", ..." if len(others) > LISTED else ""
        message += f"; {len(others)} other labels are none of them: {', '.join(others[:LISTED])}{more}"
    return CorruptData(message)


def _rarest(
    rows: Mapping[Any, int], known: Sequence[Any], tables: Sequence[tuple[Table, list[Any]]], count: int
) -> list[str]:
    found = []
    for value in known[:count]:
        first = next(table.where(labels.index(value)) for table, labels in tables if value in labels)
        number = "1 row" if rows[value] == 1 else f"{rows[value]} rows, the first"
        found.append(f"{str(value)!r} has {number}: {first}")
    return found


def _written_names(parts: Parts, column: str) -> tuple[str, ...] | None:
    if (names := feature_names(parts.chosen.paths[0], column)) is not None:
        return names
    for folder in (parts.chosen.paths[0].parent, parts.folder):
        if (info := folder / INFO).is_file():
            check_inside(info, parts.root)
            if (names := names_of_feature(json_object(info).get("features"), column)) is not None:
                return names
    if not (listed := parts.folder / NAMES).is_file():
        return None
    check_inside(listed, parts.root)
    names = tuple(line.strip() for line in read_lines(listed) if line.strip())
    if len(set(names)) < len(names):
        raise CorruptData(
            f"{listed} has a class twice; one name a line is wanted, in the order of the labels"
        )
    return names or None
