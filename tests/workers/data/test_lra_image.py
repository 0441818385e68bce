"""CIFAR-10 as grey sequences."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from assay.workers.data import cifar10 as files
from assay.workers.data.formats.sequences import TokenSequences
from assay.workers.data.lra_image import grey_of, lra_image

ROWS = 4


def law_case(root: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> Callable[[str], TokenSequences]:
    """For tests/laws: four images in each of CIFAR-10's files, with one pixel or one label changed."""
    monkeypatch.setattr(files, "ROWS", ROWS)
    folder = root / "cifar10" / files.BINARY
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate([*files.FILES["train"], *files.FILES["test"]]):
        rows = np.random.default_rng(number).integers(0, 256, (ROWS, files.ROW_BYTES), dtype=np.uint8)
        rows[:, 0] %= 10
        rows[1, 1:] = 0  # a black image
        if change == "word":
            rows[0, [1, 1025, 2049]] ^= 128
        if change == "label":
            rows[0, 0] = (rows[0, 0] + 1) % 10
        rows.tofile(folder / f"{name}.bin")
    return lambda split: lra_image(root, "train" if split == "train" else "test")


def test_grey_levels_are_tensorflows() -> None:
    # tf.image.rgb_to_grayscale on uint8, by hand: floor(255.5 (.2989 R + .587 G + .114 B) / 255).
    colours = [(0, 0, 0), (255, 255, 255), (255, 0, 0), (0, 255, 0), (0, 0, 255), (10, 20, 30)]
    pixels = np.array(colours, dtype=np.uint8).T.reshape(3, 2, 3)
    assert grey_of(pixels).reshape(-1).tolist() == [0, 255, 76, 149, 29, 18]


def test_black_takes_part_unless_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    law_case(tmp_path, monkeypatch, "none")
    safe, released = (lra_image(tmp_path, "test", black=black) for black in ("token", "padding"))  # type: ignore[arg-type]
    assert (safe.channels, released.channels) == (257, 256)
    assert torch.equal(safe.tokens(range(4), 1024), released.tokens(range(4), 1024) + 1)
    assert (released.tokens([1], 1024) == 0).all()
    assert (safe.tokens([1], 1024) == 1).all()
    levels = safe.tokens([0], 1024)[0] - 1
    image = files.cifar10(tmp_path, "test").images([0], 32)[0] * 255
    expected = 0.2989 * image[0] + 0.587 * image[1] + 0.114 * image[2]
    assert (levels.view(32, 32) - expected).abs().max() <= 1
    assert levels[:32].float().sub(expected[0]).abs().max() <= 1  # row by row


def test_the_last_tenth_of_the_training_images_validates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = law_case(tmp_path, monkeypatch, "none")
    train, validation = load("train"), lra_image(tmp_path, "test", evaluated="validation")
    assert (len(train), len(validation), len(load("test"))) == (18, 2, 4)
    whole = files.cifar10(tmp_path, "train")
    assert [*train.ids, *validation.ids] == list(whole.ids)
    assert torch.equal(torch.cat([train.labels, validation.labels]), whole.labels)
