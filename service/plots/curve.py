"""Accuracy against epsilon: a line for each attack, the strongest in bold with its 95 % band."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from assay.service.contract.fractions import PIXEL_STEPS
from assay.service.contract.results import Metric
from assay.service.plots import theme
from assay.service.plots.marks import (
    APART,
    band,
    beside,
    between,
    categories,
    category,
    heading,
    interval,
    points,
    quantity,
)
from assay.service.plots.series import (
    IN_STEPS,
    TITLES,
    LabelledResults,
    Measured,
    accuracy_name,
    attacked,
    ends_of,
    interval_text,
    is_noise,
    label_of_one,
    strongest_attacks,
)
from assay.service.plots.theme import DataRows, Vega

TITLE = "Accuracy against epsilon"
NEEDS = "an attack with an epsilon"
STRONGEST = "strongest attack at each ε"
MAX_DIRECT = 4  # more lines have a legend in place of names at their ends
NAME_GAP = 0.075  # least distance of names, as a share of the axis
NORMS = {"Linf": "L∞", "L2": "L2", "L1": "L1", "L0": "L0"}


def curve(jobs: Sequence[LabelledResults]) -> Vega | None:
    """A panel per norm and kind of accuracy, a line for each attack, a colour for each job."""
    rows = attacked(jobs)
    if not rows:
        return None
    several = len(jobs) > 1
    by_axes: dict[tuple[str, ...], list[Measured]] = {}
    for row in rows:
        by_axes.setdefault((row.norm, row.unit, accuracy_name(row.row) or ""), []).append(row)
    names = list(dict.fromkeys(row.job for row in rows)) if several else []
    panels = [_panel(alike, names) for alike in by_axes.values()]
    if several and len(panels) > 1:
        panels = [_named(panel, alike) for panel, alike in zip(panels, by_axes.values(), strict=True)]
    strongest = [] if several or len(by_axes) > 1 else _strongest(rows)
    description = _description([*strongest, *rows], several)
    body = beside(panels, resolve=APART)
    return theme.frame("curve", TITLE, body, description=description, subtitle=label_of_one(jobs))


def _named(panel: Vega, rows: Sequence[Measured]) -> Vega:
    """The panel under the name of its attack, where its legend has the jobs alone."""
    attacks = {row.attack for row in rows}
    return {**panel, "title": heading(attacks.pop())} if len(attacks) == 1 else panel


def _panel(rows: Sequence[Measured], names: Sequence[str]) -> Vega:
    """The panel of a norm; `names` of several jobs have their colours in every panel."""
    several = bool(names)
    published = _published(rows)
    rows = sorted(rows, key=lambda row: is_noise(row.row))
    if not several:
        rows = [*_strongest(rows), *rows]
    measured = _points(rows)
    attacks = list(dict.fromkeys(row.attack for row in rows))
    # A name beside a line that ends early would lie on the others.
    ends = {row.attack: row for row in sorted(rows, key=_x)}
    direct = not several and len(attacks) <= MAX_DIRECT and len(set(map(_x, ends.values()))) == 1
    x, y = _axes(rows[0])
    told = theme.cycled("attack", attacks, title="Attack", legend=not direct)
    if several:
        by_job = theme.cycled("job", names, title="Job")
        told = {**(told if len(attacks) > 1 else by_job), "color": by_job["color"]}
    tooltip = [
        *categories("job", "attack"),
        category("epsilon", title="ε"),
        quantity("value", title="accuracy", format=".1%"),
        interval(),
        quantity("n"),
    ]
    order = told["shape"]["sort"]
    color, detail = told["color"], category("attack")
    line: Vega = {"x": x, "y": y, "color": color, "detail": detail}
    bands = band({"x": x, **between("y", y, "low", "high"), "color": color, "detail": detail})
    layers: list[Vega] = [bands, *theme.dashed_lines(len(order), line), points(x, y, told, tooltip, size=34)]
    if not several:
        # The band of each of many lines would hide the others.
        main = {"transform": [{"filter": {"field": "attack", "equal": attacks[0]}}]}
        bold: Vega = {"mark": {"type": "line", "strokeWidth": 3}, "encoding": line}
        layers = [
            {**main, **bands},
            *theme.dashed_lines(len(order), line, strokeWidth=1.2),
            {**main, **bold},
            layers[-1],
        ]
    if published:
        layers.append(_published_layer(published, x, y, told))
    if direct:
        layers.append(_names_layer(measured, attacks, x, y, color))
    dashed = theme.with_lines(measured, told["shape"]["field"], order)
    return {"data": {"values": dashed}, "layer": layers}


def _strongest(rows: Sequence[Measured]) -> list[Measured]:
    """The strongest of several attacks of the same examples at each radius, as a line; else none."""
    attacks = [row for row in rows if not is_noise(row.row)]
    examples = {(str(row.row.data), row.row.protocol) for row in attacks}
    if len({row.attack for row in attacks}) < 2 or len(examples) > 1:
        return []
    return [replace(row, attack=STRONGEST, epsilon=epsilon) for epsilon, row in strongest_attacks(rows)]


def _axes(row: Measured) -> tuple[Vega, Vega]:
    norm = NORMS.get(row.norm, theme.shortened(row.norm, 10))
    title = f"ε in {row.unit} ({norm})" if row.unit else f"ε ({norm})"
    x = quantity("x", title=title, axis={"tickCount": 6, "grid": False})
    y = theme.share_axis("value", TITLES.get(accuracy_name(row.row) or "", "Accuracy"))
    return x, y


def _points(rows: Sequence[Measured]) -> DataRows:
    """Each line's measured points from the smallest epsilon on, the unattacked accuracy first."""
    lines: dict[tuple[str, str], dict[float, dict[str, Any]]] = {}
    for row in rows:
        line = lines.setdefault((row.job, row.attack), {})
        if row.unattacked is not None:
            line.setdefault(0.0, _point(row, 0.0, "0", row.unattacked))
        x = _x(row)
        line[x] = _point(row, x, row.epsilon_text, row.metric)
    return [line[x] for line in lines.values() for x in sorted(line)]


def _x(row: Measured) -> float:
    return round(PIXEL_STEPS * row.epsilon if row.unit == IN_STEPS else row.epsilon, 9)


def _point(row: Measured, x: float, epsilon: str, metric: Metric) -> dict[str, Any]:
    low, high = ends_of(metric)
    return {
        "job": row.job,
        "attack": row.attack,
        "x": x,
        "epsilon": epsilon,
        "value": metric.value,
        "low": low,
        "high": high,
        "interval": interval_text(metric),
        "n": metric.n,
    }


def _published(rows: Sequence[Measured]) -> DataRows:
    return [
        {
            "job": row.job,
            "attack": row.attack,
            "x": _x(row),
            "value": reference.value,
            "source": theme.shortened(reference.source),
            "protocol": theme.shortened(reference.protocol),
        }
        for row in rows
        for reference in row.row.reference
        if reference.metric == accuracy_name(row.row)
    ]


def _published_layer(published: DataRows, x: Vega, y: Vega, told: dict[str, Vega]) -> Vega:
    return {
        "data": {"values": published},
        "mark": {"type": "point", "filled": False, "size": 70, "strokeWidth": 1.5, "opacity": 1},
        "encoding": {
            "x": x,
            "y": y,
            "color": told["color"],
            "shape": told["shape"],
            "tooltip": [
                category("source", title="published in"),
                category("protocol"),
                quantity("value", format=".1%"),
            ],
        },
    }


def _names_layer(points: DataRows, attacks: Sequence[str], x: Vega, y: Vega, color: Vega) -> Vega:
    """Each line's name at its end, moved where two would overlap."""
    ends = [[point for point in points if point["attack"] == attack][-1] for attack in attacks]
    ends.sort(key=lambda point: float(point["value"]))
    placed: DataRows = []
    for place, end in enumerate(ends):
        room = 1.0 - NAME_GAP * (len(ends) - 1 - place)  # for the names above
        least = placed[-1]["value"] + NAME_GAP if placed else NAME_GAP / 2
        placed.append({"attack": end["attack"], "x": end["x"], "value": max(least, min(end["value"], room))})
    return {
        "data": {"values": placed},
        "mark": {"type": "text", "align": "left", "baseline": "middle", "dx": 8, "limit": 170},
        "encoding": {"x": x, "y": y, "text": category("attack"), "color": color},
    }


def _description(rows: Sequence[Measured], several: bool) -> str:
    sentences = []
    lines: dict[tuple[str, str], list[Measured]] = {}
    for row in rows:
        lines.setdefault((row.job, row.attack), []).append(row)
    for (job, attack), line in list(lines.items())[:8]:
        last = max(line, key=lambda row: row.epsilon)
        before = (
            ""
            if last.unattacked is None
            else f" from {theme.percent(last.unattacked.value)} without an attack"
        )
        whose = f"of {job} " if several else ""
        sentences.append(
            f"under {'the ' * (attack == STRONGEST)}{attack} the accuracy {whose}goes{before}"
            f" to {theme.percent(last.metric.value)} at epsilon {last.epsilon_text}"
        )
    more = f"; {len(lines) - 8} more lines" if len(lines) > 8 else ""
    text = "; ".join(sentences) + more
    return f"{TITLE}: {text}."
