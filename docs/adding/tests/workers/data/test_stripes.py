"""Stripes run in the direction that the label says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from assay.workers.data import stripes as module
from assay.workers.data.formats.dataset import DataSet
from assay.workers.data.stripes import DIRECTIONS, stripes


def law_case(root: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> Callable[[str], DataSet]:
    """For tests/laws: the set, with one pixel or one label of each split changed."""
    draw = module._stripes

    def changed(identifier: str, label: int, period: float) -> torch.Tensor:
        pixels = draw(identifier, label, period)
        if change == "pixel" and identifier.endswith("-000"):
            pixels[0, 0, 0] = 255 - pixels[0, 0, 0]
        return pixels

    def load(split: str) -> DataSet:
        data = stripes(root, split)
        if change == "label":
            data.labels[0] = 1
        return data

    monkeypatch.setattr(module, "_stripes", changed)
    return load


def test_horizontal_stripes_are_the_same_along_a_row_and_vertical_ones_along_a_column() -> None:
    images, labels = stripes(None, "test").images(range(8), 16), stripes(None, "test").labels[:8]
    for image, label in zip(images[:, 0], labels.tolist(), strict=True):
        along_row, along_column = image.std(1).max(), image.std(0).max()
        if DIRECTIONS[label] == "horizontal":
            assert along_row < 0.01 < along_column
        if DIRECTIONS[label] == "vertical":
            assert along_column < 0.01 < along_row


def test_every_example_has_its_own_phase() -> None:
    images = stripes(None, "train").images(range(0, 40, 4), 16)  # ten of one class
    distances = torch.cdist(images.flatten(1), images.flatten(1))
    assert (distances + 10 * torch.eye(10)).min() > 0.01
