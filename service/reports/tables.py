"""Tables of results: rows and columns by any field of the numbers, a cell a value with its interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from assay.service.catalog.catalog import load
from assay.service.contract.fractions import canonical
from assay.service.contract.problems import Problems, nearest
from assay.service.contract.results import Metric
from assay.service.metrics.compare.sanity_checks import EFFORT
from assay.service.reports.numbers import (
    RADIUS,
    WITHOUT,
    label_title,
    number,
    params_text,
    printable,
    split_params,
    telling_params,
)
from assay.service.reports.tidy import TidyRow

Label = Callable[[TidyRow], str]
Row = TypeVar("Row")
MISSING = "-"
FIELDS: Mapping[str, Label] = {
    "attack": lambda row: row.attack,
    "model": lambda row: row.model_label or row.model,
    "data": lambda row: row.data,
    "protocol": lambda row: row.protocol,
    "metric": lambda row: row.metric_name,
    "seed": lambda row: f"seed {row.seed}",
    "name": lambda row: row.name,
    "job": lambda row: row.job,
    "part": lambda row: row.part or "all",
}
# Join the columns, in this order, until each cell has one number.
TELL_APART = ("data", "protocol", "metric", "seed", "name", "job")


@dataclass(frozen=True)
class TableCell:
    """A number of a table."""

    value: str  # with its unit
    interval: str  # without brackets, or why it is missing; empty for an exact count
    bold: bool = False  # differs from all others significantly and for the better


@dataclass(frozen=True)
class Table:
    """A table of texts, for any format."""

    header: list[str]  # labels of the rows, then of each column
    rows: list[tuple[str, list[TableCell | None]]]  # label and cells; None is a missing number
    notes: list[str] = field(default_factory=list)  # on protocol, examples, intervals and parameters
    counted: Collection[str] = ()  # labels of rows that a sentence counts


def pivot(
    rows: Sequence[TidyRow],
    *,
    by: tuple[str, str] = ("attack", "model"),
    metric: str | None = None,
    best: Collection[tuple[str, str]] = (),
    counted: Collection[tuple[str, str]] | None = None,
) -> Table:
    """The numbers as a table, with rows and columns `by` two fields: a key of `FIELDS`, or a parameter.

    Further words in the heads tell numbers of a cell apart; parameters tell an attack from its namesakes.
    Without a metric: each evaluation's first, or all where `by` has "metric". `best`: job and key of bold
    numbers. `counted`, of a report on attacks: numbers of the sentence; then attacks are last, the strongest
    first, and notes have no parameter at its default. Raises InvalidSpec: no such field or metric; the
    details have the nearest.
    """
    _check(rows, by, metric)
    chosen = [row for row in rows if "part" in by or not row.part]
    if metric is not None:
        chosen = [row for row in chosen if row.metric_name == metric]
    elif "metric" not in by:
        # a part of a breakdown is shown by the metric of its whole.
        firsts = {(row.job, row.attack, row.metric_name) for row in chosen if row.first}
        chosen = [
            row
            for row in chosen
            if row.first or (row.part and (row.job, row.attack, row.metric_name) in firsts)
        ]
    asked = chosen
    if counted is not None:
        groups = strongest_first(chosen, lambda row: row.attack, lambda row: row.metric)
        chosen = [row for group in groups for row in group]
    attacks, shared = _attack_labels(chosen, by, brief=counted is not None)
    labels = {**FIELDS, "attack": lambda row: attacks[id(row)]}
    across, down = _label(labels, by[0]), _labels(chosen, labels, by)
    heads = list(dict.fromkeys(down(row) for row in asked))
    cells: dict[str, dict[str, TidyRow]] = {}
    for row in chosen:
        cells.setdefault(across(row), {}).setdefault(down(row), row)
    hidden = len(chosen) - sum(map(len, cells.values()))
    marked = set(best)
    lines = [
        (name, [_cell(cells[name][head], marked) if head in cells[name] else None for head in heads])
        for name in _ordered(chosen, by[0], across)
    ]
    left = [f"{hidden} further numbers have the same labels as one that is shown"] if hidden else []
    with_value = [line for line in lines if any(cell and cell.value != MISSING for cell in line[1])]
    if empty := [name for name, _ in lines if name not in dict(with_value)]:
        left.append(f"without a value: {', '.join(empty)}")
    notes = [*notes_on(chosen, across), *shared, *left]
    told: dict[str, dict[str, None]] = {}
    for row in chosen:
        if (row.job, row.key) in (counted or ()):
            told.setdefault(across(row), {})[down(row)] = None
    if told:
        of = {name: f" ({', '.join(jobs)})" if len(told) > 1 else "" for name, jobs in told.items()}
        notes.insert(0, f"worst case: {', '.join(f'{name}{of[name]}' for name in told)}")
    # A row that is the worst case of some jobs is another case of the others.
    return Table([by[0], *heads], with_value, notes, [*told] if len(told) == 1 else [])


def strongest_first(
    rows: Iterable[Row], name: Callable[[Row], str], metric: Callable[[Row], Metric | None]
) -> list[list[Row]]:
    """Rows by name: attacks last, the strongest first, then distances, then noise, a name's worst first."""

    def goodness(row: Row) -> float:
        found = metric(row)
        if found is None or found.value is None:
            return -math.inf
        return found.value if found.higher_is_better else -found.value

    def place(numbered: tuple[int, list[Row]]) -> tuple[int, list[float]]:
        number, group = numbered
        if not load().changes_examples(name(group[0])):
            return 0, [number]
        first = metric(group[0])
        distance = first is not None and first.unit == "distance"
        return 1 + load().random_changes(name(group[0])), [distance, *map(goodness, group)]

    names: dict[str, list[Row]] = {}
    for row in rows:
        names.setdefault(name(row), []).append(row)
    groups = [sorted(group, key=goodness) for group in names.values()]
    return [group for _, group in sorted(enumerate(groups), key=place)]


def _check(rows: Sequence[TidyRow], by: tuple[str, str], metric: str | None) -> None:
    problems = Problems()
    fields = [*FIELDS, *sorted({name for row in rows for name in row.params} - FIELDS.keys())]
    for place, name in zip(("rows", "columns"), by, strict=True):
        if name not in fields:
            near = nearest(name, fields)
            problems.add(("query", place), "no such field", given=name, allowed=fields, nearest=near)
    if by[0] == by[1] and not len(problems):
        problems.add(("query", "columns"), "is the field of the rows", given=by[1], allowed="another field")
    metrics = list(dict.fromkeys(row.metric_name for row in rows))
    if metric is not None and metric not in metrics:
        near = nearest(metric, metrics)
        problems.add(("query", "metric"), "no such metric", given=metric, allowed=metrics, nearest=near)
    problems.raise_if_any()


def _attack_labels(
    rows: Sequence[TidyRow], by: tuple[str, str], *, brief: bool
) -> tuple[dict[int, str], list[str]]:
    """Each row's attack with the parameters that tell it apart, but those with their own field."""
    telling = telling_params([(row.attack, row.params) for row in rows])

    def told(row: TidyRow, chosen: Mapping[str, Any]) -> dict[str, Any]:
        kept = {*EFFORT, *chosen} if brief else {*row.params}
        return {name: one for name, one in row.shown(row.params).items() if name in kept and name not in by}

    params = [told(row, chosen) for row, chosen in zip(rows, telling, strict=True)]
    shown, shared = split_params([(row.attack, one) for row, one in zip(rows, params, strict=True)])
    texts = {id(row): f"{row.attack} {text}".strip() for row, text in zip(rows, shown, strict=True)}
    return texts, shared


def _label(labels: Mapping[str, Label], name: str) -> Label:
    if name in labels:
        return lambda row: printable(labels[name](row)) or MISSING

    def text(row: TidyRow) -> str:
        if name not in row.params:
            return MISSING
        value = row.params[name]
        # 8/255, 16/510 and 0.03137254901960784 are one label.
        exact = canonical(value) if isinstance(value, str) or name == RADIUS else value
        return printable(params_text(row.shown({name: exact})).removeprefix(f"{name}="))

    return text


def _ordered(rows: Sequence[TidyRow], name: str, across: Label) -> list[str]:
    """Labels of the rows: a parameter's numbers ascend, others stay in order."""
    values = {across(row): canonical(row.params[name]) for row in rows if name in row.params}
    labels = list(dict.fromkeys(map(across, rows)))
    if name in FIELDS or not all(isinstance(value, float) for value in values.values()):
        return labels
    return sorted(labels, key=lambda label: values.get(label, -math.inf))


def _labels(rows: Sequence[TidyRow], labels: Mapping[str, Label], by: tuple[str, str]) -> Label:
    """Labels of the columns, with further fields until each cell has one number."""
    first, used = _label(labels, by[0]), [_label(labels, by[1])]

    def shared_cells() -> list[list[TidyRow]]:
        cells: dict[tuple[str, ...], list[TidyRow]] = {}
        for row in rows:
            cells.setdefault((first(row), *(label(row) for label in used)), []).append(row)
        return [found for found in cells.values() if len(found) > 1]

    # Numbers of a parameter's value belong to one attack, in one norm.
    attacks = {labels["attack"](row) for row in rows if by[0] in row.params or by[1] in row.params}
    if "attack" not in by and len(attacks) > 1 and not {*by} <= FIELDS.keys():
        used = [*used, _label(labels, "attack")]
    for name in ("attack", *TELL_APART):
        if name not in by and any(len({labels[name](row) for row in cell}) > 1 for cell in shared_cells()):
            used = [*used, _label(labels, name)]
    return lambda row: ", ".join(label(row) for label in used)


def _cell(row: TidyRow, best: Collection[tuple[str, str]]) -> TableCell:
    metric = row.metric
    return TableCell(number(metric.value, metric.unit), interval_text(metric), (row.job, row.key) in best)


def interval_text(metric: Metric) -> str:
    """Both ends without brackets, or why the interval is missing; empty for an exact count."""
    if metric.ci_method == "exact":
        return ""
    low, high = (number(end, metric.unit).removesuffix(" %") for end in (metric.ci_low, metric.ci_high))
    return WITHOUT.get(metric.ci_method, f"{low}, {high}")


def notes_on(rows: Sequence[TidyRow], label: Label) -> list[str]:
    """Notes on all numbers: metrics, protocol, examples, intervals."""
    if not rows:
        return ["no numbers"]
    return [
        f"metric: {_by_label(rows, label, lambda row: row.metric_name)}",
        f"protocol: {_by_label(rows, label, lambda row: row.protocol)}",
        f"data: {_by_label(rows, label, lambda row: label_title(row.data))}",
        f"n: {_by_label(rows, label, lambda row: str(row.metric.n))}",
        f"95 % intervals in brackets: {', '.join(dict.fromkeys(_methods(rows))) or 'none'}",
    ]


def _methods(rows: Sequence[TidyRow]) -> list[str]:
    return [row.metric.ci_method for row in rows if row.metric.ci_method not in {*WITHOUT, "exact", "none"}]


def _by_label(rows: Sequence[TidyRow], label: Label, value: Callable[[TidyRow], str]) -> str:
    """The value of all rows, or those for each label: `pixel (pgd, fgsm), text (swap)`."""
    found: dict[str, dict[str, None]] = {}
    for row in rows:
        found.setdefault(value(row), {})[label(row)] = None
    if len(found) == 1:
        return printable(next(iter(found)))
    return ", ".join(f"{printable(text)} ({'; '.join(labels)})" for text, labels in found.items())
