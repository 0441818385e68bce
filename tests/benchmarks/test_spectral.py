"""Ratios of errors over seeds: the interval of the textbook, its coverage, lines and picture of a study."""

from __future__ import annotations

import math

import numpy as np
import pytest

from assay.service.studies.result_wire import ArmValue, SeedValue
from benchmarks.evidence.archive import FOLDER, load
from benchmarks.evidence.pages import drawn
from benchmarks.evidence.spectral import ERROR, is_spectral, ratio, spectral_lines


def test_the_interval_is_of_the_textbook() -> None:
    """Logarithms 0, 1, 2, 3: mean 1.5, deviation 1.291, t(0.975; 3) = 3.182."""
    middle, low, high = ratio([math.exp(power) for power in range(4)], [1.0] * 4)
    assert math.log(middle) == pytest.approx(1.5)
    assert math.log(high / middle) == pytest.approx(3.182 * 1.29099 / 2, rel=1e-3)
    assert math.log(middle / low) == pytest.approx(math.log(high / middle))
    for wrong in (([1.0], [1.0]), ([1.0, 2.0], [1.0])):
        with pytest.raises(ValueError, match=r"two seeds|zip"):
            ratio(*wrong)


def test_the_interval_covers_in_nineteen_of_twenty() -> None:
    draws = np.exp(np.random.default_rng(7).normal(size=(1000, 2, 4)))
    covered = sum(low <= 1 <= high for _, low, high in (ratio(*one.tolist()) for one in draws))
    assert 930 <= covered <= 970


def test_a_study_of_errors_becomes_lines_and_a_picture() -> None:
    found = load(FOLDER / "primal_basic_motions.json.gz")[0].results()
    assert not is_spectral(found)
    cells = []
    for place, method in enumerate(("nystrom_scores", "nystromformer")):
        for count in (64, 128):
            errors = [(2 - place) * factor / count for factor in (1.0, 2.0)]
            seeds = [SeedValue(seed=seed, value=error) for seed, error in enumerate(errors)]
            arms = [ArmValue(arm=arm, mean=1.0, sd=0.0, n=None, seeds=seeds) for arm in found.arms]
            update = {"metric": f"{method}{ERROR}{count}", "arms": arms, "comparisons": []}
            cells.append(found.cells[0].model_copy(update=update))
    results = found.model_copy(update={"cells": cells})
    assert is_spectral(results)
    lines = spectral_lines(results, "name")
    assert "softmax: 2 times [2, 2]" in lines[0]
    assert "| softmax | 64 | 128 |" in lines
    assert "| `nystrom_scores` | 0.044 (0.031 to 0.062) | 0.022 (0.016 to 0.031) |" in lines
    assert all(text in drawn(results) for text in ("nystromformer", "relative spectral error", "Primal."))
