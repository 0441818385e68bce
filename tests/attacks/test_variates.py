"""Numbers made of random words: their laws, and the same bits wherever they are made."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from assay.attacks import philox, variates
from tests.support.emulated_device.device import emulated_device

N = 2_000_000
KEY = (20261128, 37)
# SHA-256 of the entries in units of the grid.
TABLE = "775159783152b39274162b952dc84bb8724e42a4a5315cdaf0ec08083abd788a"


def words(count: int, key: tuple[int, int] = KEY) -> Tensor:
    return philox.on_cpu(np.array([key], dtype=np.uint64), count)


def uniform(count: int = N, key: tuple[int, int] = KEY) -> Tensor:
    made = torch.empty(1, count)
    variates.uniform(words(variates.words_for("uniform", count), key), made)
    return made[0]


def normal(count: int = N, key: tuple[int, int] = KEY) -> Tensor:
    made = torch.empty(1, count)
    variates.normal(words(variates.words_for("normal", count), key), made)
    return made[0]


def test_uniform_numbers_are_midpoints_of_equal_intervals() -> None:
    drawn = uniform().double()
    scaled = drawn * 2**24
    assert bool((scaled % 2 == 1).all())
    assert drawn.min() > 0
    assert drawn.max() < 1
    ends = torch.tensor([[0, -1]], dtype=torch.int64).view(torch.int32)  # smallest and largest words
    signs = torch.tensor([[2**31 - 1, -(2**31)]], dtype=torch.int64).to(torch.int32)
    for two in (ends[:, ::3], signs):
        made = torch.empty(1, 2)
        variates.uniform(two.contiguous().view(torch.int64), made)
        assert float(made.sum()) == 1  # a word and its complement lie symmetric about 1/2
    assert sorted(made[0].tolist()) == [2.0**-24, 1 - 2.0**-24]


def test_uniform_numbers_are_uniform() -> None:
    drawn = uniform().double().numpy()
    assert stats.kstest(drawn, "uniform").pvalue > 1e-4
    counts = np.bincount((drawn * 4096).astype(int), minlength=4096)
    assert stats.chisquare(counts).pvalue > 1e-4
    pairs = np.bincount((drawn[::2] * 64).astype(int) * 64 + (drawn[1::2] * 64).astype(int), minlength=4096)
    assert stats.chisquare(pairs).pvalue > 1e-4


def test_the_table_of_normal_numbers_has_the_same_bits_everywhere() -> None:
    table = variates.normal_table()
    assert len(table) == 2**16
    assert torch.equal(table, -table.flip(0))
    assert bool((table.diff() > 0).all())
    whole = (table.double() * variates.GRID).to(torch.int32)
    assert torch.equal(whole.double() / variates.GRID, table.double())
    assert hashlib.sha256(whole.numpy().astype("<i4").tobytes()).hexdigest() == TABLE
    # Sums of four are whole numbers below 2^24: exact in float32, in any order.
    assert 4 * int(whole.max()) < 2**24


@pytest.mark.costly
def test_the_distribution_of_normal_numbers_is_as_stated() -> None:
    """The distribution function of a sum of four entries, by its characteristic function."""
    upper = variates.normal_table().double()[2**15 :]
    t = torch.arange(1, 4801, dtype=torch.float64) / 400
    values = torch.stack([torch.cos(part[:, None] * upper).mean(1) for part in t.split(100)])
    excess = values.flatten() ** 4 - torch.exp(-t.square() / 2)
    x = torch.arange(0, 6.01, 0.05, dtype=torch.float64)
    deviation = (torch.sin(x[:, None] * t) * excess / t).sum(1) / 400 / math.pi
    assert float(deviation.abs().max()) < 1.25e-7
    tail = 1 - torch.special.ndtr(x)
    for place, most in ((4, 0.0017), (5, 0.015), (6, 0.081)):
        lighter = float((deviation / tail)[round(place / 0.05)])
        assert 0 < lighter < most
    assert float(4 * upper.square().mean()) == pytest.approx(1 - 1.5e-6, abs=1e-7)
    assert 8.7 < float(4 * upper[-1]) < 8.8


@pytest.mark.costly
def test_normal_numbers_are_normal() -> None:
    drawn = normal().double().numpy()
    assert stats.kstest(drawn, "norm").pvalue > 1e-4
    z = drawn.mean() * N**0.5, (drawn.var() - 1) * (N / 2) ** 0.5
    z += ((drawn**3).mean() * (N / 15) ** 0.5, ((drawn**4).mean() - 3) * (N / 96) ** 0.5)
    assert max(map(abs, z)) < 4
    for bound in (3, 4, 4.5):
        expected = N * math.erfc(bound / 2**0.5)
        found = int((abs(drawn) > bound).sum())
        assert stats.poisson.cdf(found, expected) > 1e-4
        assert stats.poisson.sf(found - 1, expected) > 1e-4


@pytest.mark.parametrize("draw", [uniform, normal])
def test_numbers_of_one_key_are_independent(draw: Callable[..., Tensor]) -> None:
    """Also those of one group of the Hadamard matrix, and their squares."""
    count = 4 * 100_000
    drawn = draw(count).double()
    drawn = (drawn - drawn.mean()) / drawn.std()
    for values in (drawn, drawn.square() - drawn.square().mean()):
        scaled = values / values.std()
        for lag in (1, 2, 3, 4, 5, 7, 8, 16, 224, 100_000, 200_000, 300_000):
            correlation = float((scaled[lag:] * scaled[:-lag]).mean())
            assert abs(correlation) < 5 / (count - lag) ** 0.5, lag
    assert count > variates.BLOCK  # the groups above are those of a block
    group = drawn[: variates.BLOCK].view(4, -1)
    size = group.shape[1]
    for values in (group, group.square() - 1, group**3):
        correlations = torch.corrcoef(values) - torch.eye(4, dtype=torch.float64)
        assert float(correlations.abs().max()) < 5 / size**0.5
    signs = (group > 0).long()
    cells = torch.bincount((signs * torch.tensor([[8], [4], [2], [1]])).sum(0), minlength=16)
    assert stats.chisquare(cells.numpy()).pvalue > 1e-4


@pytest.mark.parametrize("draw", [uniform, normal])
def test_numbers_of_neighbouring_keys_are_independent(draw: Callable[..., Tensor]) -> None:
    keys = [(0, 0), (0, 1), (1, 0), (1, 1), (2**63, 0), (0, 2**63), (2**64 - 1, 2**64 - 1)]
    rows = torch.stack([draw(100_000, key).double() for key in keys])
    correlations = torch.corrcoef(rows) - torch.eye(len(keys), dtype=torch.float64)
    assert float(correlations.abs().max()) < 5 / 100_000**0.5


@pytest.mark.parametrize("bound", [1, 2, 3, 7, 1000, 2**31])
def test_integers_are_uniform_below_their_bound(bound: int) -> None:
    drawn = variates.below(variates.halves(words(100_000), 200_000), bound)
    assert drawn.min() >= 0
    assert drawn.max() < bound
    cells = min(bound, 100)
    counts = torch.bincount(drawn[0] * cells // bound, minlength=cells).double().numpy()
    if cells > 1:
        shares = np.diff(np.ceil(np.arange(cells + 1) * bound / cells)) / bound
        assert stats.chisquare(counts, shares * counts.sum()).pvalue > 1e-4
    exact = [(int(word) % 2**32) * bound >> 32 for word in variates.halves(words(50), 100)[0]]
    assert drawn[0, :100].tolist() == exact


@pytest.mark.sampled
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 30, 31, 1000])
@pytest.mark.parametrize("block", [8, variates.BLOCK])
def test_an_accelerator_makes_the_same_numbers(
    count: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(variates, "BLOCK", block)
    keys = np.array([(1, 2), (3, 4), (5, 6)], dtype=np.uint64)
    for law in ("uniform", "normal"):
        length = variates.words_for(law, count)
        rows = [torch.empty(1, count) for _ in keys]
        for key, row in zip(keys, rows, strict=True):
            variates.FILL[law](philox.on_cpu(key[None], length), row)
        with emulated_device() as device:
            made = torch.empty(len(keys), count, device=device.device)
            variates.FILL[law](philox.on_device(keys, length, device.device), made)
            assert torch.equal(made.cpu(), torch.cat(rows))
