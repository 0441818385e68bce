from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from sklearn.datasets import load_digits

from assay.workers.data import digits as module
from assay.workers.data.digits import FACTS, MEAN, STD, digits
from assay.workers.data.formats.dataset import DataSet
from assay.workers.data.formats.sampling import example_key


def law_case(root: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> Callable[[str], DataSet]:
    """For tests/laws: the set, with one pixel or one label of each split changed."""
    pixels, labels = (tensor.clone() for tensor in module.load_all())
    for split in ("train", "test"):
        index = int(digits(None, split).ids[0])
        if change == "pixel":
            pixels[index, 0, 4, 4] = 16 - pixels[index, 0, 4, 4]
        if change == "label":
            labels[index] = (labels[index] + 1) % 10
    monkeypatch.setattr(module, "load_all", lambda: (pixels, labels))
    return lambda split: digits(root, split)


def test_counts_are_the_declared_facts() -> None:
    train, test = digits(None, "train"), digits(None, "test")
    assert (len(train), len(test)) == (FACTS["train"], FACTS["test"])
    assert (train.classes, train.channels, train.size) == (FACTS["classes"], FACTS["channels"], (8, 8))


def test_split_is_stratified_by_the_documented_hash() -> None:
    train, test = digits(None, "train"), digits(None, "test")
    assert not set(train.ids) & set(test.ids)
    every = Counter(load_digits().target.tolist())
    held = Counter(test.labels.tolist())
    assert held == {label: count // 5 for label, count in every.items()}
    for label in range(10):
        largest_test = max(
            example_key("digits", i)
            for i, y in zip(test.ids, test.labels.tolist(), strict=True)
            if y == label
        )
        smallest_train = min(
            example_key("digits", i)
            for i, y in zip(train.ids, train.labels.tolist(), strict=True)
            if y == label
        )
        assert largest_test < smallest_train


def test_pixels_are_scikit_learns_grey_levels() -> None:
    data, bunch = digits(None, "test"), load_digits()
    position = int(data.ids[17])
    expected = torch.from_numpy(bunch.images[position]).to(torch.float32) / 16
    assert torch.equal(data.images([17], 8)[0, 0], expected)
    assert int(data.labels[17]) == bunch.target[position]


def test_recommended_normalisation_is_that_of_the_train_pixels() -> None:
    data = digits(None, "train")
    pixels = data.images(range(len(data)), 8).to(torch.float64)
    assert (MEAN[0], STD[0]) == (round(float(pixels.mean()), 4), round(float(pixels.std(correction=0)), 4))


def test_content_is_pinned() -> None:
    digest = digits(None, "test").content_sha256()
    assert digest == "86a035223de8c212a67bb44ec8f474290e9f81657a0c8857fcda84cdf396dbc7"
