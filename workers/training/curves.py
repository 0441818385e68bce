"""Training curves as SVG: loss, accuracy by epoch, training and validation; the same for same records."""

from __future__ import annotations

from collections.abc import Sequence

from assay.service.metrics.analyses.svg import Panel, Point, Series
from assay.service.metrics.analyses.svg import draw as draw_panels
from assay.workers.training.training_log import EpochRecord


def draw(records: Sequence[EpochRecord], judged: str = "validation") -> str:
    """Plot loss, and accuracy with and without attack, per epoch; for a language model, the evaluation loss.

    There is at least one record, and losses are finite; `judged` says what the judged loss and accuracy are
    of.
    """
    # The axis starts at 0 even if auxiliary losses make the loss negative.
    loss = _by_epoch([max(record.loss, 0.0) for record in records])
    losses = [Series("loss", loss, "line")]
    evaluated = [r.evaluation_loss for r in records if r.evaluation_loss is not None]
    if len(evaluated) == len(records):
        losses.append(Series("of the evaluation split", _by_epoch(evaluated), "line"))
    judgements = [(r.judged_loss, r.judged_accuracy) for r in records]
    found = [(loss, 100 * value) for loss, value in judgements if loss is not None and value is not None]
    if len(found) == len(records):
        losses.append(Series(judged, _by_epoch([loss for loss, _ in found]), "line"))
    known = [100 * record.accuracy for record in records if record.accuracy is not None]
    accuracy = [Series("accuracy", _by_epoch(known), "line")]
    attacked = [r.adversarial_accuracy for r in records if r.adversarial_accuracy is not None]
    if attacked:
        values = _by_epoch([100 * value for value in attacked])
        accuracy.append(Series("under the attack of the training", values, "line"))
    if len(found) == len(records):
        accuracy.append(Series(judged, _by_epoch([value for _, value in found]), "line"))
    highest = max(y for series in losses for _, y in series.points)
    epochs, top = (1.0, float(len(records))), max(highest, 1e-9) * 1.05
    panels = [
        Panel("Training loss", "epoch", "", tuple(losses), epochs, (0.0, top), whole=True),
        Panel("Training accuracy, %", "epoch", "", tuple(accuracy), epochs, (0.0, 100.0), whole=True),
    ]
    return draw_panels(panels if known else panels[:1])


def _by_epoch(values: Sequence[float]) -> tuple[Point, ...]:
    return tuple((float(epoch), value) for epoch, value in enumerate(values, start=1))
