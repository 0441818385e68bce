"""Time series in memory: rows with their steps, statistics, and how gaps are filled."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from assay.workers.data.formats.series import Series, filled, statistics_of

NAN = float("nan")


def made() -> Series:
    values = [np.arange(6, dtype=np.float32).reshape(3, 2), np.ones((1, 2), dtype=np.float32)]
    return Series(
        name="two",
        class_names=("a", "b"),
        ids=["x", "y"],
        values=values,
        labels=[1, 0],
        statistics=statistics_of(values),
        longest=5,
    )


def test_a_row_has_the_features_and_the_steps_that_exist() -> None:
    rows = made().images([1, 0], 4)
    assert rows.shape == (2, 3, 4)
    assert rows[0].tolist() == [[1, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]]
    assert rows[1].tolist() == [[0, 2, 4, 0], [1, 3, 5, 0], [1, 1, 1, 0]]


def test_a_series_that_does_not_fit_is_refused_with_the_length_that_would() -> None:
    data = made()
    assert (data.longest, data.lengths) == (5, {"x": 3, "y": 1})
    with pytest.raises(ValueError, match=r"has 5 steps, the model reads 2: .* length at least 5"):
        data.images([0], 2)
    assert data.images([1], 2).shape == (1, 3, 2)


def test_statistics_are_those_of_all_known_steps() -> None:
    mean, std = statistics_of([np.array([[1.0, 5.0], [2.0, NAN]]), np.array([[6.0, 5.0]])])  # type: ignore[list-item]
    steps = torch.tensor([1.0, 2.0, 6.0], dtype=torch.float64)
    assert mean == (3.0, 5.0)
    assert std == (pytest.approx(float(steps.std()), abs=1e-12), 1.0)


def test_gaps_are_filled_from_their_own_series() -> None:
    values = np.array([[NAN, NAN], [2.0, NAN], [NAN, NAN], [6.0, NAN], [NAN, NAN]], dtype=np.float32)
    whole = filled(values, (0.0, 7.0))
    assert whole[:, 0].tolist() == [2, 2, 4, 6, 6]
    assert whole[:, 1].tolist() == [7] * 5
    assert np.isnan(values[0]).all(), "the given one is left as it was"
