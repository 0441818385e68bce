"""The steps of an attack on an example: margin, what the attack raises, distance and gradient."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from pydantic import ValidationError

from assay.service.api.artifacts import read_artifact
from assay.service.contract.errors import AssayError
from assay.service.contract.findings.traces import MAX_BYTES, TracedStep, TraceFile
from assay.service.files.file_store import FileStore
from assay.service.plots.marks import categories, quantity
from assay.service.plots.theme import DataRows, Vega, cycled, frame
from assay.service.store.rows import ArtifactRow

TITLE = "Steps of the attack"
PANELS = {
    "margin": "Margin",
    "objective": "What the attack raises",
    "linf": "Change, L∞",
    "gradient": "Gradient, L2",
}
# Codes of warnings about steps
EXPLAINED = ("zero_gradient", "nonfinite_gradient", "tiny_gradients", "saturated_loss", "unconverged")
LAST_PART = 10
MAX_SERIES = 30
SIDE = 190  # of a panel, in pixels
SIZE = (535, 545)  # of the plot, nearly


def trace(steps: Sequence[TracedStep], example: str) -> Vega:
    """A panel for each number, against the iterates in order; stages and restarts in their colours."""
    series = _series(steps)
    rows: DataRows = [
        {**step._asdict(), "iterate": place, "series": series[place]} for place, step in enumerate(steps)
    ]
    told = cycled("series", list(dict.fromkeys(series)), title=None)
    told["color"]["legend"] = {"orient": "bottom", "columns": 3}
    x = quantity("iterate", title="Iterate", axis={"grid": False, "tickMinStep": 1, "format": "d"})
    panels: list[Vega] = []
    for name, title in PANELS.items():
        y = quantity(name, title=title, scale={"zero": name != "objective"}, axis={"tickCount": 5})
        tooltip = [*categories("stage"), quantity("step"), quantity(name, format=".4g")]
        line = {"x": x, "y": y, "color": told["color"], "tooltip": tooltip}
        mark = {"type": "line", "point": {"size": 14}}
        panels.append({"width": SIDE, "height": SIDE, "mark": mark, "encoding": line})
    margins = [step.margin for step in steps if step.margin is not None]
    ends = f"from {margins[0]:.3g} to {margins[-1]:.3g}" if margins else "unknown"
    description = f"{TITLE} on example {example}: {len(rows)} iterates, margin {ends}."
    # Two by two, which is legible on a phone.
    body = {"data": {"values": rows}, "concat": panels, "columns": 2}
    return frame("trace", TITLE, body, description=description, subtitle=f"Example {example}")


def _series(steps: Sequence[TracedStep]) -> list[str]:
    names = [f"{step.stage}, restart {step.restart}" for step in steps]
    if len(set(names)) > MAX_SERIES:
        names = [step.stage for step in steps]
    shown = [*dict.fromkeys(names)]
    if len(shown) > MAX_SERIES:
        del shown[MAX_SERIES - 1 :]
    return [name if name in shown else "others" for name in names]


def seen_codes(steps: Sequence[TracedStep]) -> set[str]:
    """Codes of warnings that the steps on an example show."""
    slopes = [step.gradient for step in steps if step.gradient is not None]
    found = {"zero_gradient"} if slopes and not slopes[0] else set[str]()
    raised = [step.objective for step in steps if step.objective is not None]
    before = max(raised[: len(raised) - -(-len(raised) // LAST_PART)], default=float("inf"))
    rise = max(raised, default=0.0) - before
    held = all(step.margin is None or step.margin >= 0 for step in steps)
    return found | ({"unconverged"} if held and rise > max(0.01, 0.05 * abs(before)) else set())


def read_steps(files: FileStore, row: ArtifactRow | None, example: str) -> list[TracedStep]:
    """The steps of an attack on an example; empty where the file has none, or cannot be read."""
    with suppress(AssayError, ValidationError, OSError):
        if row is not None:
            content = read_artifact(files, row, MAX_BYTES)
            return TraceFile.model_validate_json(content).examples.get(example, [])
    return []
