"""A tiny classifier and data set, and a training that another process can be killed in.

Run as `python standins.py FOLDER`: it trains there, with a checkpoint after each step, and writes each
report as a line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from assay.workers.training.loop import Trained, train
from assay.workers.training.recipe import Augmentation, Recipe

CLASSES = 3
SIZE = 8
BATCH = 8
STEPS_PER_EPOCH = 5
EVERYTHING = Recipe(
    epochs=6,
    learning_rate=0.02,
    warmup_epochs=1.5,
    minimum_learning_rate=1e-4,
    weight_decay=0.1,
    label_smoothing=0.1,
    clip_norm=0.5,
    ema_decay=0.9,
    augmentation=Augmentation(shift=0.1, rotate=20, scale=0.1, flip=True, mixup=0.4),
)


class Stripes:
    """Noisy images whose brightest third of columns is the label."""

    name = "stripes"
    task = "classification"
    classes = CLASSES
    class_names = ("left", "middle", "right")
    channels = 1
    mean = (0.5,)
    std = (0.25,)
    size = (SIZE, SIZE)

    def __init__(self, n: int = 43):
        self.labels = torch.arange(n) % CLASSES
        self.ids = [f"{index:03d}" for index in range(n)]
        self.loads = 0
        columns = torch.arange(SIZE) * CLASSES // SIZE
        bright = (columns[None] == self.labels[:, None]).float()
        noise = torch.rand(n, 1, SIZE, SIZE, generator=torch.Generator().manual_seed(1))
        self._pixels = 0.5 * noise + 0.5 * bright[:, None, None, :]

    def __len__(self) -> int:
        return len(self.ids)

    def images(self, indices: Sequence[int], size: int) -> Tensor:
        assert size == SIZE
        self.loads += 1
        return self._pixels[list(indices)]

    def content_sha256(self) -> str:
        return "0" * 64


def classifier(seed: int = 0) -> nn.Module:
    """Has what a checkpoint must not forget: buffers, and layers that draw random numbers."""
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(1, 4, 3),
            nn.BatchNorm2d(4),
            nn.GELU(),
            nn.Dropout(0.2),
            nn.Flatten(),
            nn.Linear(4 * (SIZE - 2) ** 2, CLASSES),
        )


class Overflowing(nn.Module):
    """Its gradients overflow float16 at the initial loss scale of 2 ** 16."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(SIZE**2, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.linear(x.flatten(1))
        return logits * 100.0


def run(folder: Path, **changes: object) -> Trained:
    """Train the stand-ins; `changes` replace arguments of `train`."""
    arguments: dict[str, object] = {
        "classifier": classifier(),
        "data": Stripes(),
        "recipe": EVERYTHING,
        "seed": 3,
        "image_size": SIZE,
        "batch_size": BATCH,
        "device": torch.device("cpu"),
        "dtype": torch.float32,
        "folder": folder,
        "checkpoint_seconds": 3600.0,
        "report": lambda _: None,
    }
    return train(**(arguments | changes))  # type: ignore[arg-type]


def write_line(report: Mapping[str, object]) -> None:
    """Slow enough for a reader to strike between two steps, not only at the end."""
    sys.stdout.write(json.dumps(report) + "\n")
    sys.stdout.flush()
    time.sleep(0.02)


def stop_at(step: int) -> Callable[[Mapping[str, object]], None]:
    """A report that raises KeyboardInterrupt once the checkpoint of that step is on the disk."""

    def report(message: Mapping[str, object]) -> None:
        if message["type"] == "checkpoint" and message["step"] == step:
            raise KeyboardInterrupt

    return report


if __name__ == "__main__":
    torch.set_num_threads(1)
    run(Path(sys.argv[1]), checkpoint_seconds=0.0, report=write_line)
