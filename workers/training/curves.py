"""The training log as a picture: loss and accuracy by epoch, as SVG.

Written here because a worker has no plotting library. The same records give the same text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from workers.training.training_log import EpochRecord

PANEL_WIDTH, PANEL_HEIGHT = 320, 220
LEFT, TOP, GAP, BOTTOM = 56, 36, 72, 44
WIDTH = LEFT + 2 * PANEL_WIDTH + GAP + 16
HEIGHT = TOP + PANEL_HEIGHT + BOTTOM
COLOURS = ("#0072b2", "#d55e00")
MOST_TICKS = 6


@dataclass(frozen=True)
class Panel:
    """One plot: values by epoch, from 0 to `top`, each series with its name."""

    title: str
    series: tuple[tuple[str, Sequence[float]], ...]
    top: float
    left: int

    def x(self, epoch: float, epochs: int) -> float:
        """Horizontal position of an epoch, counted from 1; a single one stands in the middle."""
        share = 0.5 if epochs == 1 else (epoch - 1) / (epochs - 1)
        return self.left + share * PANEL_WIDTH

    def y(self, value: float) -> float:
        """Vertical position of a value."""
        return TOP + PANEL_HEIGHT * (1 - value / self.top)


def draw(records: Sequence[EpochRecord]) -> str:
    """Loss, and accuracy with and without attack, of each epoch.

    Args:
        records: at least one; losses are finite.

    Returns:
        The text of an SVG file.
    """
    loss = [record.loss for record in records]
    accuracy: list[tuple[str, Sequence[float]]] = [("accuracy", [100 * r.accuracy for r in records])]
    attacked = [r.adversarial_accuracy for r in records if r.adversarial_accuracy is not None]
    if attacked:
        accuracy.append(("under the attack of the training", [100 * value for value in attacked]))
    # A loss with auxiliary parts may be negative; the axis then begins at 0 all the same.
    panels = (
        Panel("Training loss", (("loss", loss),), max(*loss, 0.0, 1e-9) * 1.05, LEFT),
        Panel("Training accuracy, %", tuple(accuracy), 100.0, LEFT + PANEL_WIDTH + GAP),
    )
    parts = [part for panel in panels for part in _panel(panel, len(records))]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}"'
        f' viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">'
    )
    return "\n".join([head, f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>', *parts, "</svg>\n"])


def _panel(panel: Panel, epochs: int) -> list[str]:
    bottom = TOP + PANEL_HEIGHT
    parts = [_text(panel.left, TOP - 14, panel.title, "start")]
    for value in _ticks(0.0, panel.top):
        y = panel.y(value)
        parts.append(f'<path d="M{panel.left} {y:.2f}h{PANEL_WIDTH}" stroke="#ddd"/>')
        parts.append(_text(panel.left - 6, y + 4, f"{value:g}", "end"))
    whole = [epoch for epoch in _ticks(1.0, float(epochs)) if epoch.is_integer()]
    parts += [_text(panel.x(epoch, epochs), bottom + 18, f"{epoch:g}", "middle") for epoch in whole]
    parts.append(_text(panel.left + PANEL_WIDTH / 2, bottom + 36, "epoch", "middle"))
    for number, ((label, values), colour) in enumerate(zip(panel.series, COLOURS, strict=False)):
        points = [(panel.x(n, epochs), panel.y(max(value, 0.0))) for n, value in enumerate(values, start=1)]
        listed = " ".join(f"{x:.2f},{y:.2f}" for x, y in points)
        parts.append(f'<polyline points="{listed}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        x, y = points[-1]
        parts.append(f'<circle cx="{x:.2f}" cy="{y:.2f}" r="3" fill="{colour}"/>')
        if len(panel.series) > 1:
            height = bottom - 10 - 16 * (len(panel.series) - 1 - number)
            parts.append(_text(panel.left + PANEL_WIDTH - 6, height, label, "end", colour))
    return parts


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers from `low` to `high`, at most six; `low` alone where they are equal."""
    if high <= low:
        return [low]
    rough = (high - low) / (MOST_TICKS - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    first = math.ceil(low / step)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def _text(x: float, y: float, text: str, anchor: str, colour: str = "#333") -> str:
    return f'<text x="{x:.2f}" y="{y:.2f}" text-anchor="{anchor}" fill="{colour}">{text}</text>'
