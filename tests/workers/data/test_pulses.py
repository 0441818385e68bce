"""The generated pulses: counts, seeds, and a target that the series has in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.workers.data import pulses as module
from assay.workers.data.formats.series import TargetSeries
from assay.workers.data.pulses import BEATS, FACTS, LONGEST, RATE, SHORTEST, pulses


def law_case(root: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> Callable[[str], TargetSeries]:
    """For tests/laws: twelve series in each split, with one value or one target of each changed."""
    draw = module._draw

    def changed(identifier: str, seed: int, noise: float) -> Any:
        values, target = draw(identifier, seed, noise)
        if identifier.endswith("-0000"):
            values[3, 1] += change == "value"
            target += change == "label"
        return values, target

    def load(split: str) -> TargetSeries:
        module._training.cache_clear()
        data = pulses(root, "train" if split == "train" else "test")
        module._training.cache_clear()
        return data

    monkeypatch.setattr(module, "_draw", changed)
    monkeypatch.setattr(module, "FACTS", {**FACTS, "train": 12, "test": 12})
    return load


def test_counts_are_the_declared_facts() -> None:
    for split in ("train", "test"):
        data = pulses(None, split)  # type: ignore[arg-type]
        assert (len(data), data.classes, data.channels, data.longest) == (FACTS[split], 1, 3, LONGEST)
        assert min(data.lengths.values()) == SHORTEST
        assert max(data.lengths.values()) == LONGEST
        assert BEATS[0] <= float(data.labels.min()) < 52
        assert 148 < float(data.labels.max()) <= BEATS[1]
    assert data.target_std == pytest.approx(100 / np.sqrt(12), rel=0.05)  # uniform


def test_the_rate_is_the_strongest_frequency_of_the_sensor() -> None:
    data = pulses(None, "test", noise=0.0)
    for index in range(20):
        steps = data.lengths[data.ids[index]]
        sensor, _, motion = data.images([index], LONGEST)[0, :3, :steps].double().numpy()
        line = np.arange(steps)
        pulse = sensor - 0.5 * motion - np.polyval(np.polyfit(line, sensor - 0.5 * motion, 1), line)
        spectrum = np.abs(np.fft.rfft(pulse * np.hanning(steps), 4096))
        found = 60 * RATE * spectrum.argmax() / 4096
        assert found == pytest.approx(float(data.labels[index]), abs=3)


def test_another_seed_or_noise_makes_other_series() -> None:
    usual = pulses(None, "test").content_sha256()
    assert usual == pulses(None, "test").content_sha256()
    assert usual != pulses(None, "test", seed=1).content_sha256()
    assert usual != pulses(None, "test", noise=0.2).content_sha256()
