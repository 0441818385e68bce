"""The training log as a picture: loss and accuracy by epoch, as SVG.

The same records give the same text.
"""

from __future__ import annotations

from collections.abc import Sequence

from workers.plotting import Panel, Point, Series
from workers.plotting import draw as draw_panels
from workers.training.training_log import EpochRecord


def draw(records: Sequence[EpochRecord]) -> str:
    """Loss, and accuracy with and without attack, of each epoch.

    Args:
        records: at least one; losses are finite.

    Returns:
        The text of an SVG file.
    """
    # A loss with auxiliary parts may be negative; the axis then begins at 0 all the same.
    loss = _by_epoch([max(record.loss, 0.0) for record in records])
    accuracy = [Series("accuracy", _by_epoch([100 * record.accuracy for record in records]), "line")]
    attacked = [r.adversarial_accuracy for r in records if r.adversarial_accuracy is not None]
    if attacked:
        values = _by_epoch([100 * value for value in attacked])
        accuracy.append(Series("under the attack of the training", values, "line"))
    epochs, top = (1.0, float(len(records))), max(*(y for _, y in loss), 1e-9) * 1.05
    panels = [
        Panel("Training loss", "epoch", "", (Series("loss", loss, "line"),), epochs, (0.0, top), whole=True),
        Panel("Training accuracy, %", "epoch", "", tuple(accuracy), epochs, (0.0, 100.0), whole=True),
    ]
    return draw_panels(panels)


def _by_epoch(values: Sequence[float]) -> tuple[Point, ...]:
    return tuple((float(epoch), value) for epoch, value in enumerate(values, start=1))
