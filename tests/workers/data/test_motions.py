"""The generated series: counts, figures, seeds, and the same numbers on every machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.workers.data import motions as module
from assay.workers.data.formats.series import Series
from assay.workers.data.motions import FACTS, FIGURES, LONGEST, SHORTEST, motions


def law_case(root: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> Callable[[str], Series]:
    """For tests/laws: twelve series in each split, with one value or one label of each changed."""
    draw = module._draw

    def changed(identifier: str, seed: int, noise: float) -> Any:
        values = draw(identifier, seed, noise)
        if change == "value" and identifier.endswith("-0000"):
            values[3, 1] += 1
        return values

    def load(split: str) -> Series:
        module._statistics.cache_clear()
        data = motions(root, "train" if split == "train" else "test")
        if change == "label":
            data.labels[0] = 1
        return data

    monkeypatch.setattr(module, "_draw", changed)
    monkeypatch.setattr(module, "FACTS", {**FACTS, "train": 12, "test": 12})
    return load


def test_counts_are_the_declared_facts() -> None:
    module._statistics.cache_clear()
    for split in ("train", "test"):
        data = motions(None, split)  # type: ignore[arg-type]
        assert (len(data), data.classes, data.channels, data.longest) == (FACTS[split], 6, 3, LONGEST)
        assert data.labels.bincount().tolist() == [FACTS[split] // 6] * 6
        assert min(data.lengths.values()) == SHORTEST
        assert max(data.lengths.values()) == LONGEST


def test_the_series_are_the_same_everywhere() -> None:
    found = motions(None, "test").images([0], LONGEST)[0, :, :4]
    expected = [
        [-0.318, -0.511, -0.438, -0.697],
        [-0.841, -0.735, -0.599, -0.429],
        [0, 0.22, 0.155, 0.31],
        [1, 1, 1, 1],
    ]
    torch.testing.assert_close(found, torch.tensor(expected), rtol=0, atol=1e-6)


def test_another_seed_or_noise_makes_other_series() -> None:
    usual = motions(None, "test").content_sha256()
    assert usual != motions(None, "test", seed=1).content_sha256()
    assert usual != motions(None, "test", noise=0.2).content_sha256()


def test_without_noise_a_line_is_straight_and_a_circle_is_not() -> None:
    data = motions(None, "test", noise=0.0)
    assert tuple(FIGURES)[:2] == ("circle", "line")
    circle, line = (data.images([index], LONGEST)[0, :2, : data.lengths[data.ids[index]]] for index in (0, 1))
    # The drift goes elsewhere than the line: what is left beside it is small.
    shares = [torch.linalg.svdvals(one - one.mean(1, keepdim=True)) for one in (circle, line)]
    assert shares[1][1] / shares[1][0] < 0.5 < shares[0][1] / shares[0][0]
