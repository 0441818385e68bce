"""Accuracy under attack against clean accuracy, and against what the attack costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay.service.plots.series import LabelledResults, Measured, attacked, interval_text
from assay.service.plots.theme import Spec, cycled, frame, percent, share_axis, shortened

TITLE = "Robust against clean accuracy"
NEEDS = "an attack with an epsilon beside the same data without an attack"
NEEDS_TOGETHER = "an attack with equal parameters and an epsilon that all of them have"
COST_TITLE = "Accuracy under attack against its cost"
COST_NEEDS = "an attack with an epsilon, and its passes"
MAX_SETTINGS = 6


def tradeoff(jobs: Sequence[LabelledResults]) -> Spec | None:
    """A point for each job and setting, with intervals both ways; None without clean accuracies.

    The settings are those of the attack with the most passes among the attacks that all jobs have: at most
    six epsilons of it.
    """
    rows = [row for row in attacked(jobs) if row.unattacked is not None]
    chosen = _common(rows)
    if not chosen:
        return None
    points = [_tradeoff_point(row) for row in chosen]
    names = list(dict.fromkeys(row.job for row in chosen))
    settings = list(dict.fromkeys(_setting(row) for row in chosen))
    several = len(jobs) > 1
    by_job = cycled("job", names, title="Job")
    by_setting = cycled("setting", settings, title="Attack")
    told = {**by_setting, **({"color": by_job["color"]} if several else {})}
    x = share_axis("clean", "Clean accuracy", whole=False)
    y = share_axis("robust", "Accuracy under attack")
    ends = [
        {
            "mark": {"type": "rule", "opacity": 0.7},
            "encoding": {
                "x": {**x, "field": "clean_low"},
                "x2": {"field": "clean_high"},
                "y": y,
                "color": told["color"],
            },
        },
        {
            "mark": {"type": "rule", "opacity": 0.7},
            "encoding": {
                "x": x,
                "y": {**y, "field": "robust_low"},
                "y2": {"field": "robust_high"},
                "color": told["color"],
            },
        },
    ]
    tooltip = [
        *({"field": field, "type": "nominal"} for field in ("job", "setting")),
        {"field": "clean", "type": "quantitative", "title": "clean accuracy", "format": ".1%"},
        {"field": "clean_interval", "type": "nominal", "title": "95 % interval"},
        {"field": "robust", "type": "quantitative", "title": "under attack", "format": ".1%"},
        {"field": "robust_interval", "type": "nominal", "title": "95 % interval"},
    ]
    dots = {
        "mark": {"type": "point", "filled": True, "size": 55, "opacity": 1},
        "encoding": {"x": x, "y": y, "color": told["color"], "shape": told["shape"], "tooltip": tooltip},
    }
    body: Spec = {"data": {"values": points}, "layer": [*ends, dots]}
    sentences = [
        f"{row.job}, {_setting(row)}: {percent(row.metric.value)} at a clean accuracy of"
        f" {percent(row.unattacked.value if row.unattacked else None)}"
        for row in chosen[:8]
    ]
    description = f"{TITLE}: {'; '.join(sentences)}."
    return frame("tradeoff", TITLE, body, description=description, subtitle="" if several else jobs[0].label)


def cost(jobs: Sequence[LabelledResults]) -> Spec | None:
    """A point for each job, attack and epsilon; None without attacks."""
    rows = [row for row in attacked(jobs) if _passes(row) > 0]
    if not rows:
        return None
    points = [_cost_point(row) for row in rows]
    attacks = list(dict.fromkeys(row.attack for row in rows))
    names = list(dict.fromkeys(row.job for row in rows))
    told = cycled("attack", attacks, title="Attack")
    if len(jobs) > 1:
        told = {**told, "color": cycled("job", names, title="Job")["color"]}
    x = {
        "field": "passes",
        "type": "quantitative",
        "scale": {"type": "log"},
        "title": "Passes per example (forward and backward)",
        "axis": {"grid": False, "format": "~s", "tickCount": 4},
    }
    y = share_axis("robust", "Accuracy under attack")
    tooltip = [
        *({"field": field, "type": "nominal"} for field in ("job", "attack", "epsilon")),
        {"field": "robust", "type": "quantitative", "title": "accuracy", "format": ".1%"},
        {"field": "robust_interval", "type": "nominal", "title": "95 % interval"},
        {"field": "passes", "type": "quantitative", "title": "passes per example", "format": ".1f"},
        {"field": "seconds", "type": "quantitative", "format": ".3g"},
    ]
    ends = {"y": {**y, "field": "robust_low"}, "y2": {"field": "robust_high"}}
    body: Spec = {
        "data": {"values": points},
        "layer": [
            {"mark": {"type": "rule", "opacity": 0.7}, "encoding": {"x": x, **ends, "color": told["color"]}},
            {
                "mark": {"type": "point", "filled": True, "size": 50, "opacity": 1},
                "encoding": {
                    "x": x,
                    "y": y,
                    "color": told["color"],
                    "shape": told["shape"],
                    "tooltip": tooltip,
                },
            },
        ],
    }
    dearest = max(rows, key=_passes)
    description = (
        f"{COST_TITLE}: the most expensive is {dearest.attack} at epsilon {dearest.epsilon_text} with"
        f" {_passes(dearest):.0f} passes per example, and leaves {percent(dearest.metric.value)}."
    )
    subtitle = "" if len(jobs) > 1 else jobs[0].label
    return frame("cost", COST_TITLE, body, description=description, subtitle=subtitle)


def _setting(row: Measured) -> str:
    return shortened(f"{row.attack}, ε = {row.epsilon_text}")


def _passes(row: Measured) -> float:
    """Per example."""
    return (row.row.forward_passes + row.row.backward_passes) / max(1, row.metric.n)


def _common(rows: Sequence[Measured]) -> list[Measured]:
    """The rows of the most expensive attack that all jobs have, with an epsilon that all have."""
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


def _ends(row: Measured) -> dict[str, Any]:
    metric = row.metric
    return {
        "robust": metric.value,
        "robust_low": metric.value if metric.ci_low is None else metric.ci_low,
        "robust_high": metric.value if metric.ci_high is None else metric.ci_high,
        "robust_interval": interval_text(metric),
    }


def _tradeoff_point(row: Measured) -> dict[str, Any]:
    clean = row.unattacked
    assert clean is not None
    return {
        "job": row.job,
        "setting": _setting(row),
        "clean": clean.value,
        "clean_low": clean.value if clean.ci_low is None else clean.ci_low,
        "clean_high": clean.value if clean.ci_high is None else clean.ci_high,
        "clean_interval": interval_text(clean),
        **_ends(row),
    }


def _cost_point(row: Measured) -> dict[str, Any]:
    return {
        "job": row.job,
        "attack": row.attack,
        "epsilon": row.epsilon_text,
        "passes": _passes(row),
        "seconds": row.row.seconds,
        **_ends(row),
    }
