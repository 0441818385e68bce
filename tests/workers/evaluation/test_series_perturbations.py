"""Random perturbations of time series: what they do to one, and the laws of all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from assay.attacks.randomness import Randomness, Source
from assay.service.catalog.catalog import load
from assay.service.contract.gallery import GallerySeries
from assay.workers import catalog
from assay.workers.evaluation.engine.ledger import ExampleOutcomes
from assay.workers.evaluation.engine.series import Perturbed
from assay.workers.evaluation.engine.shard import Shard
from assay.workers.evaluation.missing_values import imputed
from assay.workers.evaluation.time_shift import shifted
from assay.workers.evaluation.time_warp import at_times, warped_times
from tests.laws.test_series_laws import LENGTH, LENGTHS, shard, standardised

CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("series_noise", {"scale": 1.5}, {"scale": 0.0}),
    ("series_noise", {"scale": 1.5, "distribution": "uniform"}, {"scale": 0.0, "distribution": "uniform"}),
    ("missing_values", {"share": 0.5}, {"share": 0.0}),
    ("missing_values", {"share": 0.6, "missing": "steps", "imputation": "previous"}, {"share": 0.0}),
    ("missing_values", {"share": 0.6, "imputation": "mean"}, {"share": 0.0}),
    ("time_warp", {"strength": 1.0}, {"strength": 0.0}),
    ("time_shift", {"largest": 0.5}, {"largest": 0.0}),
]
each = pytest.mark.parametrize(
    ("name", "params", "nothing"), CASES, ids=[f"{name}-{list(params.values())}" for name, params, _ in CASES]
)


def built(name: str, params: dict[str, Any]) -> Perturbed:
    evaluation = catalog.build("evaluation", name, params)()
    assert isinstance(evaluation, Perturbed)
    return evaluation


def measured(name: str, params: dict[str, Any], where: Shard) -> ExampleOutcomes:
    return built(name, params).measure(where)


def moved(name: str, params: dict[str, Any], rows: Tensor, seed: int = 0) -> Tensor:
    sources = [Source(Randomness(seed, name), [str(number)]) for number in range(len(rows))]
    return built(name, params)._moved(rows, sources)


def test_every_evaluation_of_series_alone_is_held_to_these_laws() -> None:
    own = {one.name for one in load().list("evaluation") if one.tasks == ["series", "series_regression"]}
    assert {name for name, _, _ in CASES} == own


@each
def test_padding_and_steps_stay_and_something_moves(
    name: str, params: dict[str, Any], nothing: dict[str, Any]
) -> None:
    rows = standardised(shard())
    found = moved(name, params, rows)
    assert torch.equal(found[:, -1], rows[:, -1])
    assert not found[:, :-1].masked_select(rows[:, -1:] == 0).any()
    assert not torch.equal(found[0], rows[0])
    assert torch.equal(moved(name, params, rows), found)
    assert not torch.equal(moved(name, params, rows, seed=99)[0], found[0])
    assert_close(moved(name, nothing, rows), rows, rtol=0, atol=1e-12)


@each
def test_outcomes_depend_on_neither_batch_nor_order_nor_padding(
    name: str, params: dict[str, Any], nothing: dict[str, Any]
) -> None:
    where, n = shard(), len(LENGTHS)
    first = measured(name, params, where)
    backwards = measured(name, params, replace(where, order=range(n - 1, -1, -1), batch_size=3))
    longer = measured(name, params, shard(LENGTH + 4))
    assert first.ids == backwards.ids[::-1] == longer.ids
    assert first.clean_correct.all()
    assert first.linf is not None
    assert first.linf.max() > 0
    for column in ("loss", "linf", "l2", "prediction"):
        own = getattr(first, column)
        assert_close(own, getattr(backwards, column).flip(0), rtol=0, atol=1e-9)
        assert_close(own, getattr(longer, column), rtol=0, atol=1e-9)
    assert first.forward.tolist() == [2] * n
    assert first.columns().keys() >= {"linf", "l2", "clean_correct"}
    assert measured(name, nothing, where).correct.all()
    other = measured(name, params, replace(where, seed=1))
    assert not torch.equal(first.loss, other.loss)


def test_noise_has_the_stated_size() -> None:
    rows = torch.zeros(1, 3, 20_000, dtype=torch.float64)
    rows[:, -1] = 1
    gaussian = moved("series_noise", {"scale": 0.5}, rows)[0, :-1]
    assert float(gaussian.std()) == pytest.approx(0.5, rel=0.02)
    uniform = moved("series_noise", {"scale": 0.5, "distribution": "uniform"}, rows)[0, :-1]
    assert float(uniform.abs().max()) <= 0.5
    assert float(uniform.std()) == pytest.approx(0.5 / 3**0.5, rel=0.02)


@pytest.mark.parametrize(
    ("missing", "share", "expected"), [("values", 0.3, 6), ("steps", 0.3, 6), ("values", 0.99, 20)]
)
def test_the_share_is_missing_and_more_includes_less(missing: str, share: float, expected: int) -> None:
    rows = torch.full((1, 3, 10), 5.0, dtype=torch.float64)  # two features, ten steps
    rows[:, -1] = 1
    params = {"share": share, "missing": missing, "imputation": "mean"}
    gone = moved("missing_values", params, rows)[0, :-1] == 0
    assert int(gone.sum()) == expected
    if missing == "steps":
        assert torch.equal(gone[0], gone[1])
    less = moved("missing_values", {**params, "share": 0.1}, rows)[0, :-1] == 0
    assert not (less & ~gone).any()


def test_a_share_of_everything_is_refused() -> None:
    with pytest.raises(ValueError, match="share: must be a number of at least 0 and less than 1"):
        built("missing_values", {"share": 1.0})


def test_imputations() -> None:
    values = torch.tensor([[1.0, 2, 4, 8, 9], [1, 1, 1, 1, 1]], dtype=torch.float64)
    gone = torch.tensor([[True, False, True, False, True], [True] * 5])
    assert imputed(values, gone, "linear").tolist() == [[2, 2, 5, 8, 8], [0] * 5]
    assert imputed(values, gone, "previous").tolist() == [[0, 2, 2, 8, 8], [0] * 5]
    assert imputed(values, gone, "mean").tolist() == [[0, 2, 0, 8, 0], [0] * 5]


def test_a_shift_repeats_the_end() -> None:
    values = torch.tensor([[1.0, 2, 3, 4]])
    assert shifted(values, 1).tolist() == [[1, 1, 2, 3]]
    assert shifted(values, -3).tolist() == [[4, 4, 4, 4]]
    assert shifted(values, -1).tolist() == [[2, 3, 4, 4]]


def test_shifts_go_both_ways_up_to_the_largest() -> None:
    rows = torch.arange(10, dtype=torch.float64).repeat(200, 2, 1)
    rows[:, -1] = 1
    found = moved("time_shift", {"largest": 0.25}, rows)[:, 0, 5] - 5
    assert set(found.tolist()) == {-2, -1, 1, 2}


def test_a_warp_rises_and_keeps_both_ends() -> None:
    draws = np.array([1.0, -2.0, 0.5])
    times = warped_times(draws, 9, 1.0)
    assert times[0] == 0
    assert float(times[-1]) == pytest.approx(8)
    assert (times.diff() > 0).all()
    assert times.diff()[0] > times.diff()[4], "it is fast where a large speed was drawn"
    assert_close(warped_times(draws, 9, 0.0), torch.arange(9, dtype=torch.float64))
    assert warped_times(draws, 1, 1.0).tolist() == [0]
    values = torch.tensor([[0.0, 10, 40], [1, 1, 1]], dtype=torch.float64)
    assert at_times(values, torch.tensor([0, 0.5, 1.25, 2.0])).tolist() == [[0, 5, 17.5, 40], [1] * 4]


@each
def test_a_gallery_shows_what_the_evaluation_measured(
    name: str, params: dict[str, Any], nothing: dict[str, Any]
) -> None:
    where = shard()
    found = measured(name, params, replace(where, ranks={row: row for row in range(len(where.ids))}))
    plain = measured(name, params, where)
    assert found.columns() == plain.columns()
    assert found.linf is not None
    right = [key for key, fine in zip(found.ids, found.clean_correct.tolist(), strict=True) if fine]
    assert found.gallery is not None
    assert {item.id for item in found.gallery} == set(right)
    for item in found.gallery:
        row = found.ids.index(item.id)
        assert isinstance(item, GallerySeries)
        assert item.after is not None
        assert item.after.prediction == int(found.prediction[row])
        assert item.linf == pytest.approx(float(found.linf[row]), abs=1e-6)
