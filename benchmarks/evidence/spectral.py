"""Spectral errors of approximate attention over seeds: a panel for each model, a line for each approximation.

Two approximations are compared by the ratio of their errors, seed by seed: the mean of its logarithm with
Student's t over seeds, as errors of a kind spread over powers of ten.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from scipy.stats import t

from assay.service.plots.theme import Vega, frame
from assay.service.studies.result_wire import StudyCell, StudyResults

ERROR = "_relative_error_"
MEANS = "Picture and tables have geometric means over seeds, with the range over seeds."
ASKED = ("nystrom_scores", "nystromformer", 128)


def is_spectral(results: StudyResults) -> bool:
    """Whether a study has nothing but relative errors."""
    return all(ERROR in cell.metric for cell in results.cells)


def ratio(numerators: Sequence[float], denominators: Sequence[float]) -> tuple[float, float, float]:
    """Geometric mean of the ratios of two rows of positive numbers, and its 95 % interval.

    Raises ValueError: fewer than two, or rows of different lengths.
    """
    logs = [math.log(one / other) for one, other in zip(numerators, denominators, strict=True)]
    if len(logs) < 2:
        raise ValueError("an interval needs two seeds or more")
    half = float(t.ppf(0.975, len(logs) - 1)) * statistics.stdev(logs) / math.sqrt(len(logs))
    mean = statistics.fmean(logs)
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def spectral_lines(results: StudyResults, name: str) -> list[str]:
    """The lines of a page: answer, picture, a table for each model."""
    cells = {_place(cell): cell for cell in results.cells}
    method, other, features = ASKED
    told = []
    for arm in results.arms:
        found = ratio(_seeds(cells[method, features], arm), _seeds(cells[other, features], arm))
        told.append("{}: {:.3g} times [{:.3g}, {:.3g}]".format(arm, *found))
    lines = [
        f"**Error of `{method}` over the error of `{other}` at {features} features, 95 % interval over seeds:"
        f" {'; '.join(told)}.**\n",
        f"![Relative error against the number of features]({name}.svg)\n",
        f"{MEANS}\n",
    ]
    counts = sorted({count for _, count in cells})
    for arm in results.arms:
        lines += [f"| {arm} | {' | '.join(map(str, counts))} |", "|---" * (len(counts) + 1) + "|"]
        for one in dict.fromkeys(method for method, _ in cells):
            values = [_seeds(cells[one, count], arm) for count in counts]
            texts = [
                f"{statistics.geometric_mean(seeds):.2g} ({min(seeds):.2g} to {max(seeds):.2g})"
                for seeds in values
            ]
            lines.append(f"| `{one}` | {' | '.join(texts)} |")
        lines.append("")
    return lines


def spectral_plot(results: StudyResults) -> Vega:
    """Relative error against the number of features, both in powers, with the range over seeds."""
    counts = sorted({count for _, count in map(_place, results.cells)})
    rows: list[dict[str, Any]] = [
        {
            "arm": arm, "method": method, "features": count, "error": statistics.geometric_mean(seeds),
            "low": min(seeds), "high": max(seeds),
        }
        for cell in results.cells
        for method, count in [_place(cell)]
        for arm in results.arms
        for seeds in [_seeds(cell, arm)]
    ]  # fmt: skip
    methods = list(dict.fromkeys(row["method"] for row in rows))
    x: Vega = {
        "field": "features", "type": "quantitative", "title": "features",
        "scale": {"type": "log", "base": 2, "domain": [counts[0], counts[-1]]}, "axis": {"values": counts},
    }  # fmt: skip
    log: Vega = {"type": "log"}
    y: Vega = {"field": "error", "type": "quantitative", "title": "relative spectral error", "scale": log}
    common: Vega = {"field": "method", "type": "nominal", "sort": methods, "title": None}
    colour, shape = {"color": common}, {"shape": common}
    ends: Vega = {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, **colour}
    body: Vega = {
        "data": {"values": rows},
        "facet": {"field": "arm", "type": "nominal", "sort": list(results.arms), "title": None},
        "columns": 3,
        "spec": {
            "width": 170,
            "height": 170,
            "layer": [
                {"mark": {"type": "rule"}, "encoding": ends},
                {"mark": {"type": "line"}, "encoding": {"x": x, "y": y, **colour}},
                {"mark": {"type": "point", "filled": True}, "encoding": {"x": x, "y": y, **colour, **shape}},
            ],
        },
    }
    said = "; ".join(f"{row['arm']}, {row['method']} {row['features']}: {row['error']:.2g}" for row in rows)
    return frame("evidence", "Relative spectral error, and its range over seeds", body, description=said)


def _place(cell: StudyCell) -> tuple[str, int]:
    method, _, count = cell.metric.partition(ERROR)
    return method, int(count)


def _seeds(cell: StudyCell, arm: str) -> list[float]:
    runs = next(one for one in cell.arms if one.arm == arm)
    return [seed.value for seed in runs.seeds if seed.value is not None]
