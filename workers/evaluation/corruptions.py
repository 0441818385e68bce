"""Accuracy on corrupted images, generated on demand or read from storage.

Hendrycks and Dietterich 2019, "Benchmarking Neural Network Robustness to Common Corruptions and
Perturbations", section 4: every image under every corruption at every severity. The images are corrupted at
the model's size, a batch at a time, and never stored. The model judges each uncorrupted image, too. Stored
images are another test set (`workers/evaluation/engine/stored_corruptions.py`).

The authors have a script for each image size, with its own constants; the default is the script for the size
nearest to the model's. Two of the scripts store JPEG files: images pass through those, too.

    corrupted_top1 = mean over corruptions c and severities s of (1 - E_{s,c})
    CE_c = sum_s E_{s,c} / sum_s E_{s,c} of AlexNet,    mCE = mean_c CE_c    of the fifteen, at all severities
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from annotated_types import Interval, Len
from torch import Tensor

from assay.attacks.corruptions.imaging.constants import Constants, constants_for
from assay.attacks.corruptions.imaging.corruption import IMAGENET_C, Corruption
from assay.attacks.corruptions.imaging.imagenet_c import FIFTEEN
from assay.attacks.judgement import judge
from assay.attacks.kernel import frozen
from assay.service.contract.corruption_cells import Cell, cells_of
from assay.workers.evaluation.engine.corruption_kernels import corruption_kernels
from assay.workers.evaluation.engine.gallery.candidates import safely
from assay.workers.evaluation.engine.gallery.corrupted import CorruptedExample
from assay.workers.evaluation.engine.ledger import ExampleOutcomes, Ledger
from assay.workers.evaluation.engine.segmentation.corrupted import segment_corrupted
from assay.workers.evaluation.engine.segmentation.pixel_counts import PixelCounts
from assay.workers.evaluation.engine.shard import Evaluation, Shard
from assay.workers.evaluation.engine.stored_corruptions import StoredCells, flags

__all__ = ["corruptions"]

# Segmentation in squares, as in `clean`: `workers/evaluation/engine/segmentation/corrupted.py`.
ALSO = ("common corruptions", "mCE", "robustbench corruptions")
TASKS = ("classification", "segmentation", "stored_corruptions")
TABLE = {
    "classification": "corrupted_classification",
    "segmentation": "corrupted_segmentation",
    "stored_corruptions": "stored_corruptions",
}
PAPER = IMAGENET_C
OF_CHANNELS = (
    "data.channels in [1, 3]",
    "corruptions are for grey images and for colour images of three channels",
)
RULES = (
    OF_CHANNELS,
    (
        "params.source == 'generated' or 'stored_corruptions' in data.tasks",
        "stored images are those of a data set like imagenet_c: give the evaluation such data",
    ),
    (
        "params.source == 'stored' or 'stored_corruptions' not in data.tasks",
        "this data set is stored corrupted: the source must be 'stored'",
    ),
    (
        "params.source == 'generated' or params.constants is None",
        "stored images were made with their own constants: leave `constants` out",
    ),
)
# The uncorrupted image, then once per corruption and severity; stored sets lack the former.
PASSES = ("(params.source == 'generated') + len(params.corruptions) * len(params.severities)", "0")

# A name means the corruption at each severity, without parameters of its own.
CorruptionNames = Annotated[list[str], "corruption", Len(1, 100)]
COMMON = [*FIFTEEN]


def corruptions(
    *,
    corruptions: CorruptionNames = COMMON,
    severities: Annotated[list[Annotated[int, Interval(ge=1, le=5)]], Len(1, 5)] = [1, 2, 3, 4, 5],  # noqa: B006
    source: Literal["generated", "stored"] = "generated",
    constants: Constants | None = None,
    as_files: bool = True,
) -> Evaluation:
    """Accuracy under the corruptions of ImageNet-C, the mean corruption error, and mIoU of segmentation.

    Args:
        corruptions: Which; by default the fifteen. What is named twice counts once.
        severities: Which, 1 to 5; by default all.
        source: "generated" corrupts the images of the data set; "stored" reads those that lie corrupted in
            the folders of a data set like imagenet_c, which is another test set.
        constants: The released code: the authors' script for ImageNet-C (224 pixels), CIFAR-10-C (32) or
            Tiny ImageNet-C (64), or the fork `imagecorruptions`. Null: the script for the size nearest to the
            model's; the results state which.
        as_files: Whether generated images pass through the files that the authors' script writes: JPEG of
            quality 85 for ImageNet-C and Tiny ImageNet-C.
    """
    cells = cells_of({"corruptions": corruptions, "severities": severities})
    return StoredCells(cells) if source == "stored" else Corrupted(cells, constants, as_files)


@dataclass(frozen=True)
class Corrupted:
    """The evaluation with its parameters; see `corruptions`."""

    cells: Sequence[Cell]
    constants: Constants | None
    as_files: bool

    def constants_at(self, image_size: int) -> Constants:
        """The constants for a model of an image size, in pixels."""
        return self.constants or constants_for(image_size)

    @property
    def kernels(self) -> list[Corruption]:
        """The corruptions, which read the same files with the constants of every script of the authors."""
        return corruption_kernels(self.cells, self.constants or "imagenet_c", as_files=self.as_files)

    def measure(self, shard: Shard) -> ExampleOutcomes | PixelCounts:
        """One row per example, uncorrupted and under each corruption."""
        constants = self.constants_at(shard.image_size)
        kernels = corruption_kernels(self.cells, constants, as_files=self.as_files)
        if shard.task == "segmentation":
            subject = (shard.classifier, shard.inputs, shard.truth, shard.ids)
            return segment_corrupted(
                *subject, kernels=kernels, seed=shard.seed, classes=shard.classes, **shard.running
            )
        return self._classify(shard, kernels)

    def _classify(self, shard: Shard, kernels: Sequence[Corruption]) -> ExampleOutcomes:
        model, labels, ids = shard.classifier, shard.labels, shard.ids
        loader = shard.loader()
        ledger, shown = Ledger(labels, ids), CorruptedExample(shard.ranks, kernels)
        right = torch.zeros(len(ids), len(kernels), dtype=torch.bool)
        nonfinite = 0
        with torch.no_grad(), frozen(model):
            for rows in loader.batches():
                images, logits = loader.load(rows)
                truth, names = loader.labels_of(rows), [ids[row] for row in rows.tolist()]
                verdict = judge(logits, truth)
                ledger.note_clean(rows, verdict)
                ledger.note_pass(rows)
                shown.begin(rows, verdict, images, logits)
                found: list[Tensor] = []
                for cell, kernel in enumerate(kernels):
                    corrupted = kernel(images, names, shard.seed)
                    seen = loader.forward(corrupted)
                    shown.note(cell, corrupted, seen)
                    judged = judge(seen, truth)
                    found += [judged.rank == 0, judged.nonfinite]
                # One copy for all cells: a look at each would keep the device waiting for the next.
                fine, lost = torch.stack(found, dim=1).cpu().view(len(rows), -1, 2).unbind(2)  # (B, cells)
                right[rows] = fine
                nonfinite += int(lost.sum())
                ledger.note_pass(rows, count=len(kernels))
                ledger.settle(rows, verdict._asdict(), images, None)
                shard.progress(ledger.done)
        outcomes = ledger.close(loader.classes, loader.noted())
        return replace(
            outcomes,
            nonfinite=outcomes.nonfinite + nonfinite,
            corrupted=tuple(map(flags, right)),
            gallery=safely(lambda: shown.items(ids, labels)),
        )
