"""Warnings about the data behind a row of the results; `warning_codes.json` has their causes and remedies."""

from __future__ import annotations

from collections.abc import Iterator

from assay.service.catalog.catalog import load
from assay.service.contract.corruption_cells import content_label
from assay.service.contract.findings.data_disagreements import PREFIX, Disagreements, on_workers
from assay.service.contract.records import Plan, PlannedEvaluation
from assay.service.contract.results import Warning, data_label
from assay.service.contract.stored_specs import ComponentReference, Params


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
    yield from _of_part(planned, noun)
    if other := planned.get("other_content"):
        message = (
            f"the data set has not the published content (sha256 {other['sha256'][:12]}, published"
            f" {other['published'][:12]}): other pixels, labels or order; papers' numbers are of other {noun}"
        )
        yield Warning(code="other_content", message=message, evidence=dict(other))
    if renamed := planned.get("renamed", 0):
        message = (
            f"{renamed} classes have another name than in the data set that the model was trained on;"
            " labels are compared by their number"
        )
        yield Warning(code="class_names_differ", message=message, evidence={"count": renamed})
    if guessed := planned.get("guessed_order"):
        shown = ", ".join(guessed["pairs"]) + (", ..." if guessed["classes"] > len(guessed["pairs"]) else "")
        message = (
            f"nothing says which logit of the model is which class; the sorted names were taken: {shown}. If"
            " its order is another one, every number is wrong: state the classes in its order (class_names;"
            " --class-names or --labels), or its own names at the export or upload"
        )
        yield Warning(code="class_order_guessed", message=message, evidence=dict(guessed))
    yield from _of_sizes(planned)
    if empty := planned.get("empty_classes"):
        shown = ", ".join(empty["classes"]) + (", ..." if empty["count"] > len(empty["classes"]) else "")
        message = (
            f"{empty['count']} of {planned.get('classes')} classes have no example ({shown}): the numbers say"
            " nothing about them"
        )
        yield Warning(code="empty_classes", message=message, evidence=dict(empty))


def _of_sizes(planned: PlannedEvaluation) -> Iterator[Warning]:
    if resized := planned.get("resized"):
        message = (
            "{others} of {looked_at} images looked at have another size than the model's {size} x {size}: the"
            " short side became {short_side} and the centre was cropped (crop_fraction {crop_fraction:g})"
        )
        yield Warning(code="resized_images", message=message.format(**resized), evidence=dict(resized))
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


def _of_part(planned: PlannedEvaluation, noun: str) -> Iterator[Warning]:
    if whole := planned.get("divided_from"):
        message = (
            f"the test part has {planned['available']} of {whole} {noun}: the data have no parts,"
            ' and a hash keeps four fifths for training; "splits": "all" evaluates every example'
        )
        evidence = {"available": planned["available"], "of": whole}
        yield Warning(code="held_out_fifth", message=message, evidence=evidence)


def of_disagreement(
    data: ComponentReference, params: Params, plan: Plan, found: Disagreements
) -> Warning | None:
    """Workers online do not have the content of an evaluation's data that the plan says; None if they do."""
    label = content_label(data_label(data), params)
    by_hash, used = found.get(label, {}), plan["data_sha256"].get(label)
    others = {sha256: names for sha256, names in by_hash.items() if sha256 != used}
    if used is None or not others:
        return None
    message = (
        f"workers online do not agree on the data set: this job used the content {used[:PREFIX]}, others have"
        f" {on_workers(others)}; images, labels or order differ, and one content is wrong"
    )
    evidence = {"data": label, "sha256": used, "workers": by_hash}
    return Warning(code="data_disagreement", message=message, evidence=evidence)


def of_generated(params: Params, data: str, image_size: int | None) -> Iterator[Warning]:
    """Whether the row's corrupted images have a stored set, which its numbers are not to be confused with.

    `data` is the data set's name. The catalog's stored sets state the data that they were `corrupted_from`,
    their constants (`made_with`) and their size (`made_at`), in pixels like `image_size`.
    """
    constants = params.get("constants")
    if constants is None or params.get("source") == "stored":
        return
    for stored in load().list("data"):
        facts = stored.facts or {}
        if facts.get("corrupted_from") != data:
            continue
        made_with, made_at = facts["made_with"], facts["made_at"]
        evidence = {"stored": stored.name, "constants": constants, "image_size": image_size}
        if (constants, image_size) == (made_with, made_at):
            message = (
                f"the images were corrupted here, with the constants of {made_with}: this is another test set"
                f" than the stored {stored.name}; compare the numbers with rows that were generated in the"
                " same way, not with published ones"
            )
        else:
            message = (
                f"the images were corrupted here, with the constants of {constants} at {image_size} pixels,"
                f" but the stored {stored.name} with {made_with} at {made_at}: the numbers are of"
                f" another severity, and cannot be compared with any of {stored.name}"
            )
        yield Warning(code="regenerated_set", message=message, evidence=evidence)
