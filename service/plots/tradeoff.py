"""Accuracy under attack against clean accuracy, and against what the attack costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay.service.contract.results import Metric
from assay.service.plots.marks import between, categories, interval, points, quantity, rule
from assay.service.plots.series import (
    LabelledResults,
    Measured,
    attacked,
    ends_of,
    interval_text,
    label_of_one,
)
from assay.service.plots.theme import Vega, cycled, frame, percent, share_axis, shortened

TITLE = "Robust against clean accuracy"
NEEDS = "an attack with an epsilon beside the same data without an attack"
NEEDS_TOGETHER = "an attack with equal parameters and an epsilon that all of them have"
COST_TITLE = "Accuracy under attack against its cost"
COST_NEEDS = "an attack with an epsilon, and its passes"
MAX_SETTINGS = 6


def tradeoff(jobs: Sequence[LabelledResults]) -> Vega | None:
    """A point for each job and setting, with intervals both ways; None without clean accuracies."""
    # At most six epsilons of the common attack with the most passes.
    rows = [row for row in attacked(jobs) if row.unattacked is not None]
    chosen = _common(rows)
    if not chosen:
        return None
    names = list(dict.fromkeys(row.job for row in chosen))
    settings = list(dict.fromkeys(_setting(row) for row in chosen))
    several = len(jobs) > 1
    by_job = cycled("job", names, title="Job")
    by_setting = cycled("setting", settings, title="Attack")
    told = {**by_setting, **({"color": by_job["color"]} if several else {})}
    x = share_axis("clean", "Clean accuracy", whole=False, tickCount=4)
    y = share_axis("robust", "Accuracy under attack")
    tooltip = [
        *categories("job", "setting"),
        quantity("clean", title="clean accuracy", format=".1%"),
        interval("clean_interval"),
        quantity("robust", title="under attack", format=".1%"),
        interval("robust_interval"),
    ]
    layers = [
        rule({**between("x", x, "clean_low", "clean_high"), "y": y, "color": told["color"]}),
        rule({"x": x, **between("y", y, "robust_low", "robust_high"), "color": told["color"]}),
        points(x, y, told, tooltip, size=55),
    ]
    body: Vega = {"data": {"values": [_tradeoff_point(row) for row in chosen]}, "layer": layers}
    sentences = [
        f"{row.job}, {_setting(row)}: {percent(row.metric.value)} at a clean accuracy of"
        f" {percent(row.unattacked.value if row.unattacked else None)}"
        for row in chosen[:8]
    ]
    description = f"{TITLE}: {'; '.join(sentences)}."
    return frame("tradeoff", TITLE, body, description=description, subtitle=label_of_one(jobs))


def cost(jobs: Sequence[LabelledResults]) -> Vega | None:
    """A point for each job, attack and epsilon; None without attacks."""
    rows = [row for row in attacked(jobs) if _passes(row) > 0]
    if not rows:
        return None
    attacks = list(dict.fromkeys(row.attack for row in rows))
    names = list(dict.fromkeys(row.job for row in rows))
    told = cycled("attack", attacks, title="Attack")
    if len(jobs) > 1:
        told = {**told, "color": cycled("job", names, title="Job")["color"]}
    x = quantity(
        "passes",
        scale={"type": "log"},
        title="Passes per example (forward and backward)",
        axis={"grid": False, "format": "~s", "tickCount": 4},
    )
    y = share_axis("robust", "Accuracy under attack")
    tooltip = [
        *categories("job", "attack", "epsilon"),
        quantity("robust", title="accuracy", format=".1%"),
        interval("robust_interval"),
        quantity("passes", title="passes per example", format=".1f"),
        quantity("seconds", format=".3g"),
    ]
    layers = [
        rule({"x": x, **between("y", y, "robust_low", "robust_high"), "color": told["color"]}),
        points(x, y, told, tooltip, size=50),
    ]
    body: Vega = {"data": {"values": [_cost_point(row) for row in rows]}, "layer": layers}
    dearest = max(rows, key=_passes)
    description = (
        f"{COST_TITLE}: the most expensive is {dearest.attack} at epsilon {dearest.epsilon_text} with"
        f" {_passes(dearest):.0f} passes per example, and leaves {percent(dearest.metric.value)}."
    )
    return frame("cost", COST_TITLE, body, description=description, subtitle=label_of_one(jobs))


def _setting(row: Measured) -> str:
    return shortened(f"{row.attack}, ε = {row.epsilon_text}")


def _passes(row: Measured) -> float:
    """Per example."""
    return (row.row.forward_passes + row.row.backward_passes) / max(1, row.metric.n)


def _common(rows: Sequence[Measured]) -> list[Measured]:
    jobs = {row.job for row in rows}
    where: dict[tuple[str, float], set[str]] = {}
    for row in rows:
        where.setdefault((row.key, row.epsilon), set()).add(row.job)
    common = [row for row in rows if where[row.key, row.epsilon] == jobs]
    if not common:
        return []
    dearest = max(common, key=_passes).key
    chosen = [row for row in common if row.key == dearest]
    epsilons = sorted({row.epsilon for row in chosen})[:MAX_SETTINGS]
    return [row for row in chosen if row.epsilon in epsilons]


def _with_ends(name: str, metric: Metric) -> dict[str, Any]:
    low, high = ends_of(metric)
    return {
        name: metric.value,
        f"{name}_low": low,
        f"{name}_high": high,
        f"{name}_interval": interval_text(metric),
    }


def _tradeoff_point(row: Measured) -> dict[str, Any]:
    clean = row.unattacked
    assert clean is not None
    return {
        "job": row.job,
        "setting": _setting(row),
        **_with_ends("clean", clean),
        **_with_ends("robust", row.metric),
    }


def _cost_point(row: Measured) -> dict[str, Any]:
    return {
        "job": row.job,
        "attack": row.attack,
        "epsilon": row.epsilon_text,
        "passes": _passes(row),
        "seconds": row.row.seconds,
        **_with_ends("robust", row.metric),
    }
