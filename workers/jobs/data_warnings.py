"""Warnings about the data of one row of the results. `docs/warnings.md` has the cause and remedy of each."""

from __future__ import annotations

from collections.abc import Iterator

from assay.service.contract.records import PlannedEvaluation
from assay.service.contract.results import Warning


def of_data(planned: PlannedEvaluation, noun: str) -> Iterator[Warning]:
    """What the plan found doubtful about the examples, which are called `noun`."""
    if seen := planned.get("seen", 0):
        message = f"{seen} of {planned['n']} examples were trained on: accuracy is too high"
        evidence = {"count": seen, "n": planned["n"]}
        yield Warning(code="trained_on_examples", message=message, evidence=evidence)
    if cut := planned.get("cut"):
        message = f"{cut} of {planned['n']} sequences are longer than the model reads, and were cut"
        yield Warning(code="cut_sequences", message=message, evidence={"count": cut, "n": planned["n"]})
    if published := planned.get("published"):
        evidence = {"available": planned["available"], "published": published}
        message = "the folder has {available} {noun}, the published set {published}: it is another test set"
        message = message.format(**evidence, noun=noun)
        yield Warning(code="incomplete_data", message=message, evidence=evidence)
    if renamed := planned.get("renamed", 0):
        message = (
            f"{renamed} classes have another name than in the data set that the model was trained on;"
            " labels are compared by their number"
        )
        yield Warning(code="class_names_differ", message=message, evidence={"count": renamed})
    if resampled := planned.get("resampled"):
        message = (
            "the images have the model's size already, {size} x {size}, and were enlarged to {resized_to} and"
            " cropped all the same, as crop_fraction {crop_fraction:g} says; without it they stay as they are"
        )
        if "as_they_are" in resampled:
            message = (
                "{as_they_are} of {looked_at} images have the model's size, {size} x {size}, and stay as they"
                " are, others are resized to {resized_to} and cropped: objects have two scales. State a"
                " crop_fraction (--crop-fraction 1 keeps the whole short side), which holds for all"
            )
        yield Warning(code="resampled_images", message=message.format(**resampled), evidence=dict(resampled))
    if empty := planned.get("empty_classes"):
        shown = ", ".join(empty["classes"]) + (", ..." if empty["count"] > len(empty["classes"]) else "")
        message = (
            f"{empty['count']} of {planned.get('classes')} classes have no example ({shown}): the numbers say"
            " nothing about them"
        )
        yield Warning(code="empty_classes", message=message, evidence=dict(empty))
