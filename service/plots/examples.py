"""Plots of counted examples: reliability diagram, confusion matrices and accuracy of each class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from assay.service.contract.results import EvaluationResult
from assay.service.metrics.statistics.intervals import wilson
from assay.service.plots.heatmap import cell_marks
from assay.service.plots.marks import between, categories, category, heading, points, quantity, rule
from assay.service.plots.series import (
    LabelledResults,
    accuracy,
    attack_labels,
    is_noise,
    setting_label,
    strongest_attacks_of,
    telling,
)
from assay.service.plots.tallies import MAX_CLASSES
from assay.service.plots.theme import HEIGHT, DataRows, Vega, cycled, frame, percent, share_axis, shortened

CALIBRATION_TITLE = "Calibration: accuracy against confidence"
CALIBRATION_NEEDS = "one job whose outcomes have confidences, and that ended after plots were introduced"
CONFUSION_TITLE = "Confusion matrix"
CONFUSION_NEEDS = f"one job of at most {MAX_CLASSES} classes that ended after plots were introduced"
CLASSES_TITLE = "Accuracy by class"
CLASSES_NEEDS = "one job with labelled examples that ended after plots were introduced"
MAX_NUMBERED = 12  # larger matrices have no numbers
MAX_ROWS = 25
MAX_STEP = 34  # Of the cells of a matrix
MAX_CLASS_NAME, SHORT_NAME = 20, 3  # Characters of a class's name, and of names that are written level
LEAST_STEP, MOST_STEP = 9, 40  # Of the rows of classes, in pixels


def calibration(jobs: Sequence[LabelledResults]) -> Vega | None:
    """A job's reliability diagram: a point for each bin, with its interval, and the diagonal."""
    found = next((row for row in _tallied(jobs, "bins")), None)
    if found is None:
        return None
    setting, tallied, _ = found
    bins = [_bin(one) for one in tallied["bins"]]
    x = share_axis("confidence", "Mean confidence", grid=False)
    y = share_axis("accuracy", "Accuracy", grid=False)
    n = sum(part["n"] for part in bins)
    gap = sum(part["n"] * abs(part["accuracy"] - part["confidence"]) for part in bins) / n
    size = quantity("n", title="Examples", scale={"range": [20, 220]})
    told = {"color": cycled("series", ["bin"], title=None, legend=False)["color"]}
    tooltip = [
        category("bin"),
        *(quantity(name, format=".1%") for name in ("confidence", "accuracy")),
        quantity("n"),
    ]
    body: Vega = {
        "width": HEIGHT,
        "height": HEIGHT,
        "layer": [
            {
                "data": {"values": [{"confidence": 0, "accuracy": 0}, {"confidence": 1, "accuracy": 1}]},
                "mark": {"type": "line", "strokeDash": [4, 3], "color": "#888888", "strokeWidth": 1},
                "encoding": {"x": x, "y": y},
            },
            {"data": {"values": bins}, **rule({"x": x, **between("y", y, "low", "high"), **told})},
            {
                "data": {"values": bins},
                "mark": {"type": "point", "filled": True, "opacity": 1},
                "encoding": {"x": x, "y": y, "size": size, "tooltip": tooltip, **told},
            },
        ],
    }
    description = (
        f"{CALIBRATION_TITLE}, {setting}: over {n} examples in {len(bins)} bins the mean distance of"
        f" confidence and accuracy is {percent(gap)}; the dashed diagonal is perfect calibration."
    )
    subtitle = f"{jobs[0].label}: {setting}"
    return frame("calibration", CALIBRATION_TITLE, body, description=description, subtitle=subtitle)


def confusion(jobs: Sequence[LabelledResults]) -> Vega | None:
    """Shares of predictions for each label, without and under the strongest attack."""
    chosen = _clean_and_strongest(jobs, "confusion")
    if not chosen:
        return None
    classes = sorted(
        {one[key] for _, t, _ in chosen for one in t["confusion"] for key in ("label", "prediction")}
    )
    names = _class_names(chosen[0][1], classes)
    panels = [_matrix(setting, tallied, names) for setting, tallied, _ in chosen]
    sentences = []
    for setting, tallied, _ in chosen:
        wrong = [one for one in tallied["confusion"] if one["label"] != one["prediction"]]
        worst = max(wrong, key=lambda one: int(one["count"]), default=None)
        said = "no example is wrong"
        if worst is not None:
            label, prediction = names[worst["label"]], names[worst["prediction"]]
            said = f"most often {label} is taken for {prediction}, {worst['count']} times"
        sentences.append(f"{setting}: {said}")
    description = f"{CONFUSION_TITLE}: {'; '.join(sentences)}."
    if len(panels) > 1:
        body, subtitle = {"hconcat": panels}, jobs[0].label
    else:  # The panel's heading would stand in place of the plot's title.
        body, subtitle = panels[0], f"{jobs[0].label}: {panels[0].pop('title')['text']}"
    return frame("confusion", CONFUSION_TITLE, body, description=description, subtitle=subtitle)


def classes(jobs: Sequence[LabelledResults]) -> Vega | None:
    """Each class's accuracy, without and under the strongest attack."""
    chosen = _clean_and_strongest(jobs, "classes")
    if not chosen:
        return None
    labels = {one["label"] for _, tallied, _ in chosen for one in tallied["classes"]}
    names = _class_names(chosen[0][1], sorted(labels))
    values = [_class(setting, one, names) for setting, tallied, _ in chosen for one in tallied["classes"]]
    shares: dict[str, list[float]] = {}
    for value in values:
        shares.setdefault(value["class"], []).append(value["accuracy"])
    # Largest drop first; without an attack the lowest accuracy.
    order = sorted(shares, key=lambda name: shares[name][-1] - (shares[name][0] if len(chosen) > 1 else 0))
    shown = order[:MAX_ROWS]
    told = cycled("series", [setting for setting, _, _ in chosen], title=None)
    x = share_axis("accuracy", "Accuracy")
    y = category("class", sort=shown, title="Class", axis={"grid": True})
    tooltip = [*categories("class", "series"), quantity("accuracy", format=".1%"), quantity("n")]
    body: Vega = {
        "height": len(shown) * max(LEAST_STEP, min(MOST_STEP, HEIGHT // len(shown))),
        "data": {"values": [value for value in values if value["class"] in shown]},
        "layer": [
            {
                "mark": {"type": "rule", "opacity": 0.35, "strokeWidth": 3},
                "encoding": {**between("x", x, "low", "high"), "y": y, "color": told["color"]},
            },
            points(x, y, told, tooltip, size=45),
        ],
    }
    first = shares[shown[0]]
    left_out = f"; {len(order) - len(shown)} classes are not shown" if len(order) > len(shown) else ""
    under = chosen[-1][0]
    said = f"under {under} class {shown[0]} loses most, from {percent(first[0])} to {percent(first[-1])}"
    if len(chosen) == 1:
        said = f"class {shown[0]} has the lowest, {percent(first[0])}"
    description = f"{CLASSES_TITLE}: {said}{left_out}."
    return frame("classes", CLASSES_TITLE, body, description=description, subtitle=jobs[0].label)


Tallied = tuple[str, Mapping[str, Any], EvaluationResult]


def _tallied(jobs: Sequence[LabelledResults], name: str) -> list[Tallied]:
    if len(jobs) != 1:
        return []
    job = jobs[0]
    rows = job.results.evaluations
    labels = attack_labels(rows)
    return [
        (setting_label(rows[place], labels), tallied, rows[place])
        for place, tallied in sorted(job.tallies.items())
        if place < len(rows) and tallied.get(name)
    ]


def _clean_and_strongest(jobs: Sequence[LabelledResults], name: str) -> list[Tallied]:
    """The first evaluation without an attack, and the strongest attack; without an epsilon, by accuracy."""
    found = _tallied(jobs, name)
    if not found:
        return []
    first = next((one for one in found if "attack_success_rate" not in one[2].metrics), None)
    cases = strongest_attacks_of(jobs[0].results)
    attacks = [
        one
        for one in found
        if "attack_success_rate" in one[2].metrics and not is_noise(one[2])
        if first is None or one[2].data == first[2].data
    ]

    def left(one: Tallied) -> tuple[bool, float]:
        metric = accuracy(one[2])
        counted = bool(cases) and one[2] is telling(cases)[1].row
        return not counted, 1.0 if metric is None or metric.value is None else metric.value

    return [*([] if first is None else [first]), *([min(attacks, key=left)] if attacks else [])]


def _bin(one: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "series": "bin",
        "bin": f"{percent(one['low'])} to {percent(one['high'])}",
        "confidence": one["confidence"],
        **_share(one),
    }


def _share(one: Mapping[str, Any]) -> dict[str, Any]:
    low, high = wilson(one["correct"], one["n"])
    return {"accuracy": one["correct"] / one["n"], "low": low, "high": high, "n": one["n"]}


def _class_names(tallied: Mapping[str, Any], labels: Sequence[int]) -> dict[int, str]:
    """The names of classes by label, each once: their numbers where the data have no names."""
    names = tallied.get("names", ())
    known = {label: shortened(names[label], MAX_CLASS_NAME) for label in labels if 0 <= label < len(names)}
    found = {label: known.get(label) or str(label) for label in labels}
    seen = Counter(found.values())
    return {label: name if seen[name] == 1 else f"{label}: {name}" for label, name in found.items()}


def _class(setting: str, one: Mapping[str, Any], names: Mapping[int, str]) -> dict[str, Any]:
    return {"class": names[one["label"]], "series": setting, **_share(one)}


def _matrix(setting: str, tallied: Mapping[str, Any], names: Mapping[int, str]) -> Vega:
    totals: dict[int, int] = {}
    counts = {(one["label"], one["prediction"]): one["count"] for one in tallied["confusion"]}
    for (label, _), count in counts.items():
        totals[label] = totals.get(label, 0) + count
    cells: DataRows = [
        {
            "label": names[label],
            "prediction": names[prediction],
            "count": counts.get((label, prediction), 0),
            "share": counts.get((label, prediction), 0) / totals[label],
        }
        for label in names
        if label in totals
        for prediction in names
    ]
    order = [*names.values()]
    named = max(map(len, order)) > SHORT_NAME
    axis = {"domain": False, "ticks": False, "labelAngle": 0, "labelOverlap": True}
    leaning = {**axis, "labelAngle": -45, "labelOverlap": len(order) > MAX_ROWS}
    x = category("prediction", sort=order, title="Prediction", axis=leaning if named else axis)
    y = category("label", sort=order, title="Label", axis=axis)
    text = quantity("count")
    tooltip = [*categories("label", "prediction"), text, quantity("share", format=".1%")]
    layers = cell_marks(x, y, "share", text, tooltip, title="Share of the label")
    step = max(4, min(MAX_STEP, HEIGHT // len(names)))
    return {
        "title": heading(setting),
        "width": step * len(order),
        "height": step * len({cell["label"] for cell in cells}),
        "data": {"values": cells},
        "layer": layers if len(names) <= MAX_NUMBERED else layers[:1],
    }
