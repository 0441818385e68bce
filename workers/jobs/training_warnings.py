"""Warnings about how the model of a row was trained, in the results of its training."""

from __future__ import annotations

from collections.abc import Iterator

from assay.service.contract.records import PlannedEvaluation
from assay.service.contract.results import Warning

ROUNDING = "the weights differ by rounding only, and by the draws of dropout, drop-path and auxiliary losses"
STATISTICS = (
    "batch normalisation took the statistics of so many examples, so that larger passes give other weights"
)


def of_training(planned: PlannedEvaluation) -> Iterator[Warning]:
    """The warnings of a training; none for the rows of other jobs."""
    if planned.get("selected_on_test"):
        message = (
            "the epoch that was best on the test set gave the weights (selection 'released_test'):"
            " the accuracy is too high; compare with results that were selected in the same way only"
        )
        yield Warning(code="selected_on_test", message=message)
    if wanted := planned.get("published_batch"):
        batches = {"published": wanted, "batch_size": planned["step_batch"]}
        message = "a step took {batch_size} examples, in the published training {published}"
        if asked := planned.get("asked_batch"):
            message += f": {asked} were asked for, and the training set has only {{batch_size}}"
        yield Warning(code="published_batch_not_reached", message=message.format(**batches), evidence=batches)
    if (peak := planned.get("peak")) is not None:
        rates = {"published": planned["published_peak"], "used": peak}
        message = (
            f"the learning rate was scaled to steps of {planned['step_batch']} examples: its peak was"
            f" {peak:.3g}, in the published training it is {planned['published_peak']:.3g}"
        )
        yield Warning(code="scaled_learning_rate", message=message, evidence=rates)
    if cut := planned.get("cut_in_training"):
        n = planned["training"]
        message = (
            f"{cut} of {n} training sequences are longer than the model reads, and were cut: it learned from"
            " their beginnings"
        )
        yield Warning(code="cut_sequences", message=message, evidence={"count": cut, "n": n, "part": "train"})
    yield from _of_machine(planned)


def _of_machine(planned: PlannedEvaluation) -> Iterator[Warning]:
    if reduced := planned.get("reduced_in_training"):
        asked, used = reduced["asked"], reduced["used"]
        message = (
            f"memory was enough for passes of {used} examples in training, not of {asked}: steps have as many"
            f" examples as before, and {STATISTICS if reduced.get('batch_norm') else ROUNDING}; ask for a"
            " smaller execution.batch_size, and state the total_batch of the recipe"
        )
        yield Warning(code="reduced_batch", message=message, evidence={**reduced, "part": "train"})
    if count := planned.get("unsaved_checkpoints", 0):
        message = (
            f"{count} checkpoints of the training found no room on the disk; it went on, and the weights are"
            " those that it would have had, but a kill would have cost more of it"
        )
        yield Warning(code="checkpoints_not_saved", message=message, evidence={"count": count})
