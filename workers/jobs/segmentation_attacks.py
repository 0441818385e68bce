"""Attacks on segmentation models in a job: what the plan must know of them, and how a shard runs one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import safetensors.torch

from assay.attacks.segmentation.kernel import PixelEnsemble
from assay.attacks.segmentation.losses import class_weights
from assay.service.catalog.catalog import load as load_catalog
from assay.service.contract.records import ArtifactDescription, PlannedEvaluation
from assay.service.contract.stored_specs import EvaluateJobSpec, EvaluationItem
from assay.workers import catalog
from assay.workers.data.formats.dataset import ExampleSet, MissingData
from assay.workers.data.formats.segmentation import IGNORE, SegmentationSet
from assay.workers.evaluation.engine.attacked_segmentation import AttackedPixels
from assay.workers.evaluation.engine.segmentation_attack import attack_segmentation
from assay.workers.jobs import artifacts
from assay.workers.jobs.session import Session

# Label maps that are read at a time.
MAPS = 64


def is_attack_on_pixels(item: EvaluationItem, data: ExampleSet) -> bool:
    """Whether an evaluation attacks a segmentation model."""
    attack = load_catalog().find_evaluation(item["name"]).kind == "attack"
    return attack and data.task == "segmentation"


def ensemble_of(item: EvaluationItem) -> PixelEnsemble:
    """The attack of an evaluation."""
    ensemble: PixelEnsemble = catalog.build("attack", item["name"], item["params"])()
    return ensemble


def class_pixels(
    item: EvaluationItem, examples: ExampleSet, spec: EvaluateJobSpec, session: Session, size: int
) -> list[int] | None:
    """The training pixels of each class (K,), where a loss of the evaluation is balanced by them; else None.

    Args:
        item: The evaluation.
        examples: What it is run on.
        spec: Of the job.
        session: Builds the data.
        size: Of the images that the model sees: pixels are counted in these squares.

    Raises:
        MissingData: there are no training images, which a balanced loss is weighed by.
        ValueError: none of their pixels has a class.
    """
    if not is_attack_on_pixels(item, examples) or not ensemble_of(item).balanced:
        return None
    try:
        training = cast(SegmentationSet, session.data(item["data"] or spec["data"], "train"))
    except MissingData as error:
        message = (
            f"{item['name']} has a loss that weighs each class by its pixels in the training images"
            f" (mce_bal): {error}"
        )
        raise MissingData(message) from error
    counts = pixels_of_classes(training, size)
    class_weights(counts)  # raises where they are of no use
    return counts


def pixels_of_classes(data: SegmentationSet, size: int) -> list[int]:
    """How many pixels of each class the squares of this side have in all images, (K,)."""
    counts = [0] * data.classes
    for start in range(0, len(data.ids), MAPS):
        rows = range(start, min(start + MAPS, len(data.ids)))
        maps = data.label_maps(rows, size)
        found = maps[maps != IGNORE].long().bincount(minlength=data.classes)
        counts = [before + more for before, more in zip(counts, found.tolist(), strict=True)]
    return counts


def attack_pixels(
    item: EvaluationItem,
    subject: tuple[Any, ...],
    *,
    classes: int,
    planned: PlannedEvaluation,
    spec: EvaluateJobSpec,
    staged: Callable[[str, int], None],
    **common: Any,
) -> AttackedPixels:
    """Runs the attack of an evaluation over the images of a shard.

    Args:
        item: The evaluation.
        subject: Model, images, label maps, ids, as `attack_segmentation` takes them.
        classes: K.
        planned: What the plan says about the evaluation.
        spec: Of the job.
        staged: As for `attack_segmentation`.
        **common: Batch size, device, dtype, progress.
    """
    pixels = planned.get("class_pixels")
    return attack_segmentation(
        ensemble_of(item),
        *subject,
        classes=classes,
        seed=spec["seed"],
        class_weights=None if pixels is None else class_weights(pixels),
        screening=spec["execution"].get("screening") is not None,
        keep_adversarial=bool(spec.get("save_adversarial")),
        staged=staged,
        **common,
    )


def save_attacked(path: Path, outcomes: AttackedPixels) -> ArtifactDescription:
    """Writes the images with the fewest right pixels, and describes the file.

    It has `images` (n, C, H, W) in [0, 1], `label_maps` (n, H, W) with 255 for what is ignored, and in its
    header, as JSON, the `ids` and the loss that found each (`losses`). Images that no loss made worse are not
    in it.
    """
    assert outcomes.adversarial is not None
    assert outcomes.maps is not None
    found = outcomes.worst.nonzero().flatten()
    tensors = {
        "images": outcomes.adversarial[found].contiguous(),
        "label_maps": outcomes.maps[found].contiguous(),
    }
    header = {
        "ids": json.dumps([outcomes.ids[row] for row in found.tolist()]),
        "losses": json.dumps([outcomes.names[outcomes.worst[row]] for row in found.tolist()]),
    }
    return artifacts.write(path, safetensors.torch.save(tensors, metadata=header))
