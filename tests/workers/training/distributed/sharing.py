"""Trainings that one process and two must do alike.

Run as `python sharing.py FOLDER RANK SIZE`: it does every training of `TRAININGS` as one of so many processes
and leaves the weights of each in FOLDER/NAME; then it does one that is stopped in its middle and goes on.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[4]))

from assay.models.layers.auxiliary import add_loss
from assay.workers.data.formats.segmentation import IGNORE, SegmentationArrays
from assay.workers.training.distributed.processes import Processes
from assay.workers.training.learner import Learner
from assay.workers.training.loop import train
from assay.workers.training.recipe import AdversarialTraining, Augmentation, Crops, Recipe
from assay.workers.training.selection import judge_of, validation_split

SIZE, CLASSES, BATCH = 8, 3, 7
STOPPED_AT = 3
PLAIN = Recipe(epochs=1, learning_rate=0.05, label_smoothing=0.1, clip_norm=0.3, ema_decay=0.8)
TIMM = Augmentation(
    flip=True, smallest_crop=0.4, rand_augment="rand-m9", mixup=0.8, cutmix=1.0, erase=0.5, repeats=2
)
AFFINE = Augmentation(shift=0.1, rotate=20, scale=0.1, flip=True, mixup=0.4)
PGD_AT = AdversarialTraining("pgd_at", epsilon=0.1, steps=2, step_size=0.04)


class Labelled:
    """Random images with labels. 23 are three batches of 7; two more are left out."""

    name, task, classes, channels = "labelled", "classification", CLASSES, 3
    class_names, mean, std, size = ("a", "b", "c"), (0.4, 0.5, 0.6), (0.2, 0.2, 0.2), (SIZE, SIZE)

    def __init__(self, n: int = 23) -> None:
        draws = torch.Generator().manual_seed(0)
        self.pixels = torch.rand(n, 3, SIZE, SIZE, generator=draws)
        self.labels = torch.arange(n) % CLASSES
        self.ids = [str(index) for index in range(n)]

    def __len__(self) -> int:
        return len(self.ids)

    def images(self, indices: list[int], size: int) -> Tensor:
        return self.pixels[list(indices)]

    def content_sha256(self) -> str:
        return "0" * 64


class Network(nn.Module):
    """Has a batch normalisation, whose batch is everybody's, and adds a loss of its own."""

    def __init__(self, dense: bool = False, scale: float = 1.0, normal: bool = True) -> None:
        super().__init__()
        # Without a bias, whose gradient would be rounding alone: AdamW makes whole steps of it.
        convolution = nn.Conv2d(3, 6, 3, padding=1, bias=False)
        normalisation = nn.BatchNorm2d(6) if normal else nn.Identity()
        self.features = nn.Sequential(convolution, normalisation, nn.GELU())
        self.head = nn.Conv2d(6, CLASSES, 1) if dense else nn.Linear(6 * SIZE * SIZE, CLASSES)
        self.dense, self.scale = dense, scale

    def forward(self, images: Tensor) -> Tensor:
        found = self.features(images)
        # The mean over the batch of something that is not linear.
        add_loss(0.1 * found.square().mean())
        logits: Tensor = self.head(found if self.dense else found.flatten(1))
        return logits * self.scale


def maps() -> SegmentationArrays:
    """The parts of a batch have different numbers of pixels that count."""
    draws = torch.Generator().manual_seed(0)
    labels = torch.randint(0, CLASSES, (15, SIZE, SIZE), generator=draws, dtype=torch.uint8)
    for index in range(15):
        labels[index, : index % SIZE] = IGNORE
    return SegmentationArrays(
        name="maps",
        class_names=("a", "b", "c"),
        ids=[str(index) for index in range(15)],
        pixels=torch.randint(0, 256, (15, 3, SIZE, SIZE), generator=draws, dtype=torch.uint8),
        maps=labels,
        mean=(0.5, 0.5, 0.5),
        std=(0.2, 0.2, 0.2),
    )


CROPS = Crops(size=SIZE, short_side=None, scales=(0.5, 2.0), flip=True, photometric=True)
TRAININGS: dict[str, dict[str, Any]] = {
    "affine": {"recipe": replace(PLAIN, epochs=2, augmentation=AFFINE)},
    "timm": {"recipe": replace(PLAIN, augmentation=TIMM), "batch_size": 8, "workers": 1},
    "odd": {"recipe": replace(PLAIN, augmentation=TIMM)},
    "fewer": {"recipe": PLAIN, "data": Labelled(3), "batch_size": 64},
    "pgd_at": {"recipe": replace(PLAIN, adversarial=PGD_AT)},
    "trades": {"recipe": replace(PLAIN, adversarial=replace(PGD_AT, objective="trades"))},
    "maps": {"recipe": replace(PLAIN, augmentation=AFFINE), "data": maps(), "model": {"dense": True}},
    "crops": {"recipe": replace(PLAIN, crops=CROPS), "data": maps(), "model": {"dense": True}},
    # A batch normalisation would take the statistics of other pieces.
    "accumulated": {
        "recipe": replace(
            PLAIN,
            epochs=3,
            augmentation=TIMM,
            total_batch=9,
            validation=0.3,
            selection="validation",
            learning_rate=0.3,
            clip_value=0.01,
        ),
        "batch_size": 4,
        "model": {"normal": False},
    },
    "sgd": {"recipe": replace(PLAIN, optimiser="sgd", momentum=0.9)},
    # With gradients small enough: overflowing steps depend on the order of summation.
    "float16": {
        "recipe": replace(PLAIN, optimiser="sgd"),
        "dtype": torch.float16,
        "model": {"scale": 0.05},
    },
}


def run(folder: Path, name: str, processes: Processes, **changes: Any) -> None:
    """Run one training, with float64 weights by default."""
    torch.manual_seed(0)
    training = dict(TRAININGS[name])
    model = Network(**training.pop("model", {}))
    with torch.no_grad():
        for number, weight in enumerate(model.parameters()):
            draws = torch.Generator().manual_seed(number)
            weight.copy_(torch.randn(weight.shape, generator=draws) * 0.2)
    data, recipe = Labelled(), training["recipe"]
    judging: dict[str, Any] = {}
    if recipe.validation > 0:
        kept, chosen = validation_split(data.name, data.ids, data.labels.tolist(), recipe.validation, 3)

        def load(rows: Sequence[int]) -> tuple[Tensor, Tensor]:
            indices = [chosen[row] for row in rows]
            return data.images(indices, SIZE), data.labels[indices]

        own = {"rank": processes.rank, "processes": processes.size}
        judge = judge_of(load, len(chosen), batch_size=2, device=torch.device("cpu"), **own)
        judging = {"rows": kept, "judge": judge}
    arguments: dict[str, Any] = {
        "data": data,
        "seed": 3,
        "image_size": SIZE,
        "batch_size": BATCH,
        "device": torch.device("cpu"),
        "dtype": torch.float64,
        "folder": folder / name,
        "checkpoint_seconds": 3600.0,
        "report": lambda _: None,
        "processes": processes,
    }
    train(**(arguments | training | judging | {"classifier": model} | changes))


def interrupt(folder: Path, processes: Processes) -> None:
    """Do the training "affine" up to a step in every process, then from the checkpoint to the end."""
    update: Callable[..., Any] = Learner.update

    def stopping(self: Learner, *given: Any, step: int, **named: Any) -> Any:
        if step == STOPPED_AT:
            raise KeyboardInterrupt
        return update(self, *given, step=step, **named)

    Learner.update = stopping  # type: ignore[method-assign]
    try:
        run(folder, "affine", processes, checkpoint_seconds=0.0)
    except KeyboardInterrupt:
        Learner.update = update  # type: ignore[method-assign]
        run(folder, "affine", processes)


if __name__ == "__main__":
    torch.set_num_threads(1)
    where, mine = Path(sys.argv[1]), Processes(int(sys.argv[2]), int(sys.argv[3]))
    meeting = f"file://{where / 'meeting'}"
    torch.distributed.init_process_group("gloo", init_method=meeting, rank=mine.rank, world_size=mine.size)
    for each in sys.argv[4:] or TRAININGS:
        run(where, each, mine)
    interrupt(where / "interrupted", mine)
    torch.distributed.destroy_process_group()
    os._exit(0)  # In an orderly exit a thread of gloo's may end the process by SIGABRT
