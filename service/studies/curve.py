"""The curve of a study: accuracy against epsilon of each arm, and beside it each arm less the baseline."""

from __future__ import annotations

from collections.abc import Sequence

from assay.service.catalog.catalog import load
from assay.service.contract.fractions import PIXEL_STEPS, fraction_value
from assay.service.contract.threat import Knowledge
from assay.service.plots.curve import NORMS
from assay.service.plots.marks import band, beside, between, points, quantity
from assay.service.plots.series import ACCURACIES, IN_STEPS
from assay.service.plots.theme import (
    DataRows,
    Vega,
    cycled,
    dashed_lines,
    frame,
    percent,
    share_axis,
    unique_labels,
    with_lines,
    without_middle,
)
from assay.service.studies.result_wire import StudyCell, StudyResults

# Labels of an axis with differences of shares.
IN_POINTS = "datum.value == 0 ? '0' : format(100 * datum.value, '+.0f')"
TITLE = "Accuracy against epsilon"
SIZE = {"width": 300, "height": 190}


def study_curve(results: StudyResults) -> Vega | None:
    """Means over seeds with their range as a band, and differences with their 95 % intervals."""
    # The attack with most epsilons counts, then the attack that leaves least; None without an epsilon.
    cells = _cells(results)
    if not cells:
        return None
    first = cells[-1][1]
    arms = unique_labels(results.arms)
    labels = dict(zip(results.arms, arms, strict=True))
    means: DataRows = [
        {"arm": labels[arm.arm], "x": x, "value": arm.mean, "low": min(known), "high": max(known)}
        for x, cell in cells
        for arm in cell.arms
        if arm.mean is not None and (known := [one.value for one in arm.seeds if one.value is not None])
    ]
    differences: DataRows = [
        {"arm": labels[one.arm], "x": x, "value": one.difference, "low": one.ci_low, "high": one.ci_high}
        for x, cell in cells
        for one in cell.comparisons
        if one.difference is not None
    ]
    norm = load().norm_of(first.evaluation, first.params)
    unit = _unit(first)
    axis = quantity("x", title=f"ε in {unit} ({NORMS.get(norm, norm)})" if unit else f"ε ({norm})")
    axis["axis"] = {"tickCount": 6, "grid": False}
    panels = [_panel(means, arms, axis, share_axis("value", "Accuracy, mean and range over seeds"))]
    if differences:
        title = f"Difference from {without_middle(labels[results.baseline], 24)}"
        less = share_axis("value", title, whole=False, labelExpr=IN_POINTS)
        less["title"] = [title, "(points, 95 % interval)"]
        panels.append(_panel(differences, arms, axis, less, zero=True))
    said = ", ".join(f"{one['arm']} {percent(one['value'])}" for one in means if one["x"] == cells[-1][0])
    description = f"{TITLE} under {first.evaluation}: at the largest epsilon {said}."
    return frame("study_curve", TITLE, beside(panels), description=description, subtitle=first.evaluation)


def _cells(results: StudyResults) -> list[tuple[float, StudyCell]]:
    """The cells of an attack by rising epsilon, after the cell without an attack at 0."""
    attacks: dict[str, list[tuple[float, StudyCell]]] = {}
    clean: dict[tuple[str, str], StudyCell] = {}
    for cell in results.cells:
        threat = load().threat_of(cell.evaluation)
        if not cell.tested or cell.metric not in ACCURACIES:
            continue
        if not cell.params and not load().changes_examples(cell.evaluation):
            clean.setdefault((str(cell.data), cell.metric), cell)
        elif threat is not None and threat.knowledge is not Knowledge.NOISE and cell.params.get("epsilon"):
            epsilon = fraction_value(cell.params["epsilon"])
            x = PIXEL_STEPS * epsilon if _unit(cell) == IN_STEPS else epsilon
            attacks.setdefault(cell.evaluation, []).append((round(x, 9), cell))
    if not attacks:
        return []
    # Variants of an attack at one epsilon: the first counts.
    lines = [sorted(dict(reversed(line)).items(), key=lambda point: point[0]) for line in attacks.values()]
    chosen = min(lines, key=lambda line: (-len(line), min(arm.mean or 0.0 for arm in line[-1][1].arms)))
    before = clean.get((str(chosen[0][1].data), chosen[0][1].metric))
    return [*([] if before is None else [(0.0, before)]), *chosen]


def _unit(cell: StudyCell) -> str:
    unit = load().radius_unit(cell.data, cell.protocol)
    if unit == "pixel":
        return IN_STEPS if load().norm_of(cell.evaluation, cell.params) == "Linf" else ""
    return unit


def _panel(rows: DataRows, arms: Sequence[str], x: Vega, y: Vega, *, zero: bool = False) -> Vega:
    told = cycled("arm", arms, title="Arm")
    inside = band({"x": x, **between("y", y, "low", "high"), "color": told["color"]})
    line: Vega = {"x": x, "y": y, "color": told["color"]}
    layers = [inside, *dashed_lines(len(arms), line, strokeWidth=2.4), points(x, y, told, [], size=45)]
    if zero:
        layers.insert(0, {"mark": "rule", "encoding": {"y": {"datum": 0}}})
    return {**SIZE, "data": {"values": with_lines(rows, "arm", arms)}, "layer": layers}
