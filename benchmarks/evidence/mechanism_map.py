"""The map of a study's arms: accuracy under attack against clean accuracy against cost, with groups.

Groups are by the studentised range (Tukey 1949; Hochberg and Tamhane 1987, "Multiple Comparison Procedures",
chapter 3) with seeds as blocks: arms of a group are not told apart, all pairs at once, at 95 %.

    HSD = q(0.95; A, f) sqrt(s2 / S),    f = (A - 1)(S - 1)
    s2  = sum over arms and seeds of (y_as - y_a. - y_.s + y_..)^2 / f

A arms, S seeds; y_as, a share of the test examples, all the same: groups hold for other seeds, and these
examples.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from functools import cache
from string import ascii_lowercase
from typing import Any

from scipy.stats import studentized_range

from assay.service.plots.theme import Vega, frame, share_axis
from assay.service.studies.result_wire import StudyCell, StudyResults

COST = "multiply_adds"
SIDES, LINE = (560, 380), 16  # Pixels
NUMBER = (10, 9)  # Pixels of a number of two digits
PLACES = ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, -1), (1, -1), (-1, 1))  # Steps of a number


def honest_difference(values: Sequence[Sequence[float]], level: float = 0.95) -> float:
    """The least difference of two means that tells arms apart.

    `values`: (arms, seeds), at least two of each. ValueError: fewer, or arms of other seeds.
    """
    arms, seeds = len(values), len(values[0]) if values else 0
    if arms < 2 or seeds < 2 or any(len(one) != seeds for one in values):
        raise ValueError("groups need two arms or more, each with the same two seeds or more")
    of_arm = [statistics.fmean(one) for one in values]
    of_seed = [statistics.fmean(one) for one in zip(*values, strict=True)]
    mean, freedom = statistics.fmean(of_arm), (arms - 1) * (seeds - 1)
    rest = (
        (value - of_arm[arm] - of_seed[seed] + mean) ** 2
        for arm, one in enumerate(values)
        for seed, value in enumerate(one)
    )
    return _quantile(level, arms, freedom) * math.sqrt(math.fsum(rest) / freedom / seeds)


@cache
def _quantile(level: float, arms: int, freedom: int) -> float:
    return float(studentized_range.ppf(level, arms, freedom))


def letters(means: Mapping[str, float], difference: float) -> dict[str, str]:
    """Arm to the letters of its groups, the largest sets of arms within the difference; `a` has the best."""
    order = sorted(means, key=lambda arm: -means[arm])
    found = dict.fromkeys(order, "")
    groups: list[range] = []
    for first, arm in enumerate(order):
        near = sum(means[arm] - means[other] < difference for other in order[first + 1 :])
        group = range(first, first + 1 + near)
        if not groups or group.stop > groups[-1].stop:
            groups.append(group)
    for letter, group in zip(ascii_lowercase, groups, strict=False):
        for at in group:
            found[order[at]] += letter
    return found


def is_map(results: StudyResults) -> bool:
    """Whether a study has a cost of each arm, from `efficiency`."""
    return any(cell.metric == COST for cell in results.cells)


def mapped(results: StudyResults) -> list[dict[str, Any]]:
    """A row for each arm, by falling accuracy in the last evaluation; shares, groups and cost.

    `clean` is of the first evaluation, `attacked` of the last but `efficiency`, with `clean group` and
    `attacked group`; `cost` is multiply-adds over the baseline's. Arms without a value of every seed are left
    out.
    """
    costs = {
        one.arm: one.mean or math.nan for cell in results.cells if cell.metric == COST for one in cell.arms
    }
    rows: dict[str, dict[str, Any]] = {}
    for column, cell in (("clean", results.cells[0]), ("attacked", attack_of(results))):
        runs = {one.arm: [seed.value for seed in one.seeds if seed.value is not None] for one in cell.arms}
        whole = {arm: values for arm, values in runs.items() if len(values) == len(results.seeds)}
        means = {arm: statistics.fmean(values) for arm, values in whole.items()}
        told = letters(means, honest_difference([*whole.values()]))
        for arm, mean in means.items():
            cost = costs[arm] / costs[results.baseline]
            row = rows.setdefault(arm, {"arm": arm, "cost": cost})
            row |= {column: mean, f"{column} group": told[arm]}
    found = [row for row in rows.values() if "clean" in row and "attacked" in row]
    return sorted(found, key=lambda row: -float(row["attacked"]))


def attack_of(results: StudyResults) -> StudyCell:
    """The evaluation that a map shows against clean accuracy."""
    return [cell for cell in results.cells if cell.metric != COST][-1]


def map_table(results: StudyResults, attack: str) -> list[str]:
    """The lines of a table; arms that share a letter in a column are not told apart in it."""
    head = [f"| mechanism | clean | | {attack} | | multiply-adds |", "|---|---|---|---|---|---|"]
    return head + [
        f"| {row['arm']} | {100 * row['clean']:.1f} % | {row['clean group']} | {100 * row['attacked']:.1f} %"
        f" | {row['attacked group']} | {row['cost']:.2f} |"
        for row in mapped(results)
    ]


def numbers_apart(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Where the number of each point stands: on it, or beside it where another number would lie there."""
    pixels = [
        (max(one) - min(one)) / side or 1.0
        for one, side in zip(zip(*points, strict=True), SIDES, strict=True)
    ]
    width, height = (size * pixel for size, pixel in zip(NUMBER, pixels, strict=True))
    found: list[tuple[float, float]] = []
    for x, y in points:
        places = [(x + right * width, y + up * height) for right, up in PLACES]
        free = (
            (a, b)
            for a, b in places
            if all(abs(a - c) >= 0.99 * width or abs(b - d) >= 0.99 * height for c, d in found)
        )
        found.append(next(free, places[0]))
    return found


def map_plot(results: StudyResults) -> Vega:
    """Accuracy under attack against clean accuracy; the size of a point is its cost, its number its row."""
    found = mapped(results)
    places = numbers_apart([(row["clean"], row["attacked"]) for row in found])
    rows = [
        {**row, "row": at, "line": at * LINE, "name": f"{at} {row['arm']}", "number x": x, "number y": y}
        for at, (row, (x, y)) in enumerate(zip(found, places, strict=True), 1)
    ]
    across = share_axis("clean", "Clean accuracy", whole=False)
    up = share_axis("attacked", "Accuracy under attack", whole=False)
    number: Vega = {
        "x": {**across, "field": "number x"},
        "y": {**up, "field": "number y"},
        "text": {"field": "row"},
    }
    size: Vega = {
        "field": "cost",
        "type": "quantitative",
        "title": f"multiply-adds, {results.baseline} = 1",
        "scale": {"zero": False, "range": [60, 360]},
        "legend": {"orient": "bottom"},
    }
    pixels: Vega = {"field": "line", "type": "quantitative", "scale": None, "axis": None}
    listed: Vega = {"x": {"value": SIDES[0] + LINE}, "y": pixels, "text": {"field": "name"}}
    body: Vega = {
        "data": {"values": rows},
        "width": SIDES[0],
        "height": SIDES[1],
        "resolve": {"scale": {"y": "independent"}},
        "layer": [
            {
                "layer": [
                    {"mark": {"type": "point", "filled": True, "opacity": 0.35}, "encoding": {"size": size}},
                    {"mark": {"type": "text", "fontSize": 8}, "encoding": number},
                ],
                "encoding": {"x": across, "y": up},
            },
            {"mark": {"type": "text", "align": "left", "fontSize": 9}, "encoding": listed},
        ],
    }
    said = "; ".join(f"{one['arm']}: {one['clean']:.3f}, {one['attacked']:.3f}" for one in rows)
    return frame(
        "evidence", "Mechanisms: accuracy under attack against clean accuracy", body, description=said
    )
