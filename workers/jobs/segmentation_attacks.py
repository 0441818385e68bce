"""The plan's data for attacks on segmentation models: the pixels of each class."""

from __future__ import annotations

from typing import cast

from assay.attacks.segmentation.kernel import PixelEnsemble
from assay.attacks.segmentation.losses import class_weights
from assay.service.catalog.catalog import load as load_catalog
from assay.service.contract.stored_specs import EvaluateJobSpec, EvaluationItem
from assay.workers import catalog
from assay.workers.data.formats.dataset import ExampleSet, MissingData
from assay.workers.data.formats.segmentation import IGNORE, SegmentationSet
from assay.workers.jobs.session import Session

# Label maps read at a time.
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

    They are counted in squares of `size` pixels, the model's input. MissingData without training images, a
    ValueError where none of their pixels has a class.
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
    class_weights(counts)  # raises where they are unusable
    return counts


def pixels_of_classes(data: SegmentationSet, size: int) -> list[int]:
    """Pixels of each class in the squares of this side, over all images, (K,)."""
    counts = [0] * data.classes
    for start in range(0, len(data.ids), MAPS):
        rows = range(start, min(start + MAPS, len(data.ids)))
        maps = data.label_maps(rows, size)
        found = maps[maps != IGNORE].long().bincount(minlength=data.classes)
        counts = [before + more for before, more in zip(counts, found.tolist(), strict=True)]
    return counts
