from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from assay.workers.data import shapes as module
from assay.workers.data.formats.segmentation import IGNORE, SegmentationSet
from assay.workers.data.shapes import FACTS, MEAN, STD, shapes


def law_case(root: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> Callable[[str], SegmentationSet]:
    """For tests/laws: eight images in each split, with one pixel or one label of each changed."""
    draw = module._draw

    def changed(identifier: str, seed: int) -> tuple[Any, Any]:
        pixels, labels = draw(identifier, seed)
        if change == "pixel" and identifier.endswith("-0000"):
            pixels[0, 30, 30] ^= 128
        if change == "label" and identifier.endswith("-0000"):
            labels[30, 30] = 2 if labels[30, 30] == 3 else 3
        return pixels, labels

    monkeypatch.setattr(module, "_draw", changed)
    monkeypatch.setattr(module, "FACTS", {**FACTS, "train": 8, "test": 8})
    return lambda split: shapes(root, "train" if split == "train" else "test")


def test_counts_are_the_declared_facts() -> None:
    for split in ("train", "test"):
        data = shapes(None, split)  # type: ignore[arg-type]
        assert (len(data), data.classes, data.channels, data.size) == (FACTS[split], 5, 3, (64, 64))


def test_every_class_and_ignored_pixels_occur() -> None:
    data = shapes(None, "test")
    maps = data.label_maps(range(len(data)), 64)
    counts = torch.bincount(maps.flatten().to(torch.int64), minlength=256) / maps.numel()
    assert 0.6 < counts[0] < 0.9
    assert counts[1:5].min() > 0.015
    assert 0.005 < counts[IGNORE] < 0.08
    assert counts[5:IGNORE].sum() == 0


def test_shapes_are_lighter_than_the_ground() -> None:
    data = shapes(None, "test")
    images, maps = (data.images(range(50), 64) * 255).round(), data.label_maps(range(50), 64)
    on_shape = (maps != 0)[:, None].expand_as(images)
    assert images[on_shape].min() >= 128 - 16
    assert images[~on_shape].max() < 96 + 16


def test_outlines() -> None:
    rows, columns = np.mgrid[-8:9, -8:9]
    areas = {name: int(module._inside(kind, rows, columns, 8).sum()) for kind, name in
             enumerate(module.CLASS_NAMES) if kind}  # fmt: skip
    # Lattice points: of a disc (Gauss), of 13 x 13, of rows of 1, 1, 3, 3, ... 17 pixels, of a diamond.
    assert areas == {"disc": 197, "square": 169, "triangle": 145, "diamond": 145}


def test_another_seed_gives_other_images() -> None:
    one, two = shapes(None, "test"), shapes(None, "test", seed=1)
    assert not torch.equal(one.images([0], 64), two.images([0], 64))
    assert one.content_sha256() != two.content_sha256()


def test_recommended_normalisation_is_that_of_the_train_pixels() -> None:
    data = shapes(None, "train")
    pixels = data.images(range(len(data)), 64).to(torch.float64)
    mean, std = pixels.mean(dim=(0, 2, 3)), pixels.std(dim=(0, 2, 3), correction=0)
    assert tuple(round(value, 4) for value in mean.tolist()) == MEAN
    assert tuple(round(value, 4) for value in std.tolist()) == STD


def test_content_is_pinned() -> None:
    digest = shapes(None, "test").content_sha256()
    assert digest == "a78cc9925f260d6f33340c7d6d49112f63cff39b0864785b0129056ba831158f"
