"""Outcomes of an evaluation, example by example: filtered, sorted and cut into pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from assay.service.contract.results import EvaluationResult, StageBreakdown
from assay.service.plots.series import has_one_answer

# Columns in the order in which they are shown; other columns of the outcomes follow, up to `MAX_COLUMNS`.
ORDER = (
    *("id", "label", "prediction", "broken_by", "epsilon", "margin", "linf", "l2", "loss"),
    *("queries", "correct5", "correct8"),
)
# Passes are in the results; whether the answers were right is shown in words.
HIDDEN = frozenset({"forward", "backward", "correct", "clean_correct"})
MAX_COLUMNS = 14
# Sorted so where the order is not given: large ones first.
DESCENDING = frozenset({"loss", "queries", "linf", "l2"})
SMALLEST = "epsilon"
NORMS = ("l1", "l0")
FACTS = ("id", "label", "prediction")  # Shown even if they are equal in all rows
FILTERS = ("broken", "survived", "wrong")

Columns = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class ExampleChoice:
    """Which examples are shown, and in which order."""

    sort: str = "id"  # a column
    descending: bool = False  # whether large values come first; missing ones are last in both orders
    only: str = ""  # one of `FILTERS`, or empty for all
    label: str | None = None  # a class; None for all classes


def joined_columns(shards: Sequence[Columns], result: EvaluationResult | None = None) -> dict[str, list[Any]]:
    """The columns that all shards have, one shard after another, with a single value for each example.

    Without `clean_correct` where the `result` has one answer to an example: right or wrong, never broken.
    """
    if not shards:
        return {}
    common = [name for name in shards[0] if all(name in shard for shard in shards)]
    if result is not None and has_one_answer(result) and "clean_correct" in common:
        common.remove("clean_correct")
    joined = {name: [*chain.from_iterable(shard[name] for shard in shards)] for name in common}
    return {name: values for name, values in joined.items() if {list, dict}.isdisjoint(map(type, values))}


def shown_columns(columns: Columns) -> list[str]:
    """Names of the columns that a page shows."""
    known = [name for name in ORDER if name in columns]
    others = [name for name in columns if name not in ORDER and name not in HIDDEN]
    return [*known, *others][:MAX_COLUMNS]


def folded_columns(columns: Columns, names: Sequence[str], norm: str) -> set[str]:
    """Columns that say little: norms other than L∞, L2 and the attack's `norm`, and one value in all rows."""
    others = {name for name in NORMS if name in names and name != norm.lower()}
    cells = {name: columns[name] for name in names if name not in FACTS and len(columns[name]) > 1}
    return others | {name for name, values in cells.items() if all(value == values[0] for value in values)}


def chosen_rows(columns: Columns, choice: ExampleChoice, stages: Sequence[str] = ()) -> list[int]:
    """Positions of the examples that match, in order; examples broken by earlier `stages` are first."""
    keep = _kept(columns, choice)
    places = {stage: place for place, stage in enumerate(stages)}
    values, ids = columns[choice.sort], columns["id"]

    def value_of(row: int) -> Any:
        value = values[row]
        return places.get(value, len(places)) if choice.sort == "broken_by" and value is not None else value

    there = [
        row for row in keep if values[row] is not None and values[row] == values[row]
    ]  # NaN is not itself
    missing = [] if len(there) == len(keep) else sorted({*keep} - {*there})
    there.sort(key=ids.__getitem__ if {str}.issuperset(map(type, ids)) else lambda row: str(ids[row]))
    if choice.sort != "id" or choice.descending:
        number = all(isinstance(value_of(row), int | float) for row in there)
        there.sort(key=lambda row: value_of(row) if number else str(value_of(row)), reverse=choice.descending)
    return [*there, *sorted(missing, key=lambda row: str(ids[row]))]


def _kept(columns: Columns, choice: ExampleChoice) -> list[int]:
    rows: Sequence[int] = range(len(columns["id"]))
    if choice.only:
        rows = [row for row in rows if outcome_of(columns, row) == choice.only]
    if choice.label is not None and "label" in columns:
        rows = [row for row in rows if str(columns["label"][row]) == choice.label]
    return list(rows)


def outcome_of(columns: Columns, row: int) -> str:
    """What became of an example: one of `FILTERS`, `right`, or empty where the outcomes do not say.

    An image is broken by corruptions if one of them breaks it.
    """
    if "corrupted" in columns:
        holds = "0" not in str(columns["corrupted"][row])
        if "correct" not in columns:
            return "right" if holds else "wrong"
        return "wrong" if not columns["correct"][row] else "survived" if holds else "broken"
    if "correct" not in columns or isinstance(columns["correct"][row], float):
        return ""
    right = bool(columns["correct"][row])
    if "clean_correct" not in columns:
        return "right" if right else "wrong"
    if not columns["clean_correct"][row]:
        return "wrong"
    return "survived" if right else "broken"


def smallest_epsilons(ids: Sequence[Any], attacks: Sequence[tuple[float, Columns]]) -> list[float | None]:
    """The smallest epsilon at which each example is wrong, over attacks that differ in epsilon, by example.

    It is 0 for examples that are wrong without an attack, None for examples that no attack broke.
    """
    attacks = sorted(attacks, key=lambda one: one[0])
    if all(columns["id"] == ids for _, columns in attacks):
        return _smallest_in_order(len(ids), attacks)
    smallest: dict[Any, float] = {}
    for epsilon, columns in attacks:
        before = columns.get("clean_correct") or [True] * len(columns["id"])
        for example, right, was in zip(columns["id"], columns["correct"], before, strict=True):
            if not was:
                smallest[example] = 0.0
            elif not right:
                smallest.setdefault(example, epsilon)
    return [smallest.get(example) for example in ids]


def _smallest_in_order(count: int, attacks: Sequence[tuple[float, Columns]]) -> list[float | None]:
    """`smallest_epsilons` of attacks on the same examples in the same order, in a fraction of its time."""
    smallest: list[float | None] = [None] * count
    for epsilon, columns in reversed(attacks):
        for place, right in enumerate(columns["correct"]):
            if not right:
                smallest[place] = epsilon
    for _, columns in attacks:
        for place, was in enumerate(columns.get("clean_correct") or ()):
            if not was:
                smallest[place] = 0.0
    return smallest


def stages_of(result: EvaluationResult) -> list[str]:
    """Names of an ensemble's stages, in their order."""
    return [part.stage for part in result.breakdown if isinstance(part, StageBreakdown)]
