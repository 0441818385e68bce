"""Random draws have the distributions of the released code."""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from imagecorruptions import corrupt
from torch import Tensor

from assay.attacks import randomness
from assay.attacks.corruptions.imaging.corruption import Corruption
from assay.attacks.corruptions.imaging.draws import between, symmetric
from assay.attacks.corruptions.imaging.shuffle import draw_offsets
from assay.attacks.corruptions.shot_noise import PHOTONS, photon_table, probabilities
from assay.attacks.randomness import Randomness, Source
from tests.support.emulated_device.device import emulated_device

N = 200_000
WITH_CHANCE = (
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "motion_blur",
    "snow",
    "frost",
    "fog",
    "elastic_transform",
    "speckle_noise",
    "spatter",
    "glass_blur",
)


def source(*ids: str) -> Source:
    return Source(Randomness(0, "any"), ids or ("one",))


def corruption(name: str, severity: int) -> Corruption:
    """The fork's, whose draws are those of the library that it is compared with."""
    module = importlib.import_module(f"assay.attacks.corruptions.{name}")
    made: Corruption = getattr(module, name)(severity=severity, constants="imagecorruptions")
    return made


def test_words_have_every_bit_half_of_the_time() -> None:
    (drawn,) = source().words((N,))
    assert drawn.dtype == torch.int32
    shares = torch.stack([((drawn >> bit) & 1).double().mean() for bit in range(32)])
    assert float((shares - 0.5).abs().max()) < 5 * 0.5 / N**0.5
    neighbours = (drawn[1:].double() * drawn[:-1].double()).mean() / 2.0**62 * 3
    assert abs(float(neighbours)) < 5 / N**0.5


def test_symmetric_numbers_have_their_moments() -> None:
    drawn, deviation = symmetric(source(), N).double(), 3**-0.5
    assert abs(float(drawn.mean())) < 5 * deviation / N**0.5
    assert float(drawn.std()) == pytest.approx(deviation, rel=0.01)


@pytest.mark.sampled
@pytest.mark.parametrize("name", WITH_CHANCE)
def test_a_device_makes_the_draws_of_the_cpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made, ids = corruption(name, 3), ("a", "b", "c")
    expected = made.draws(ids, (3, 40, 50), 0)
    monkeypatch.setattr(randomness, "WORDS_FOR_DEVICE", 0)
    with emulated_device() as device:
        found = made.draws(ids, (3, 40, 50), 0, device.device)
        assert not device.waits
        assert not device.uploads
        for one, other in zip(found, expected, strict=True):
            assert one.device == device.device
            assert torch.equal(one.cpu(), other)


def test_angles_fill_their_range() -> None:
    drawn = between(source(*map(str, range(2000))), -45, 45)
    counts = torch.histc(drawn, 9, -45, 45)
    assert float(counts.sum()) == 2000
    assert float(((counts - 2000 / 9) ** 2 / (2000 / 9)).sum()) < 30


@pytest.mark.parametrize("name", ["motion_blur", "snow"])
def test_angles_have_the_bounds_of_the_released_code(
    name: str, photographs: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, list[tuple[float, float]]] = {"ours": [], "released": []}

    def note(who: str, draw: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any) -> Any:
            asked[who].append(arguments[-2:])
            return draw(*arguments)

        return noted

    monkeypatch.setattr(f"assay.attacks.corruptions.{name}.between", note("ours", between))
    monkeypatch.setattr(np.random, "uniform", note("released", np.random.uniform))
    image = photographs[0]
    for severity in range(1, 6):
        corruption(name, severity).draws(("one",), image.shape, seed=0)
        corrupt(image.to(torch.uint8).permute(1, 2, 0).contiguous().numpy(), severity, name)
    assert len(asked["ours"]) == 5
    assert asked["ours"] == asked["released"]


@pytest.mark.sampled
@pytest.mark.parametrize("photons", sorted({photons for table in PHOTONS.values() for photons in table}))
def test_photons_are_poisson_to_the_last_bits_of_a_word(photons: int) -> None:
    table = photon_table(photons)
    columns = 2**table.bits
    own = table.thresholds.view(256, columns).double() / 2 ** (32 - table.bits) / columns
    outcomes = table.outcomes.view(256, columns, 2)
    wanted = probabilities(photons)
    # Of more than 255 photons several counts are one level.
    levels, place = (
        (torch.arange(photons + 1, dtype=torch.float64) / photons * 255).floor().unique(return_inverse=True)
    )
    summed = torch.zeros(256, len(levels), dtype=torch.float64).index_add(1, place, wanted)
    found = torch.zeros_like(summed)
    for share, outcome in ((1 / columns - own, outcomes[..., 0]), (own, outcomes[..., 1])):
        found += torch.stack([(share * (outcome == level)).sum(1) for level in levels], dim=1)
    assert float((found - summed).abs().max()) < 1e-8
    torch.testing.assert_close(wanted.sum(1), torch.ones(256, dtype=torch.float64))
    counts = torch.arange(photons, dtype=torch.float64)
    poisson = torch.distributions.Poisson(torch.tensor(64 / 255 * photons, dtype=torch.float64))
    torch.testing.assert_close(wanted[64, :-1], poisson.log_prob(counts).exp())


def test_offsets_are_uniform_and_within_reach() -> None:
    for reach in (1, 2, 3, 4):
        (offsets,) = draw_offsets(source(), 2, 120, 90, reach)
        assert offsets.shape == (2, 2, 120 - 2 * reach, 90 - 2 * reach)
        pairs = (offsets[:, 0].long() + reach) * 2 * reach + offsets[:, 1] + reach
        counts = torch.bincount(pairs.flatten(), minlength=4 * reach**2).double()
        assert len(counts) == 4 * reach**2
        expected = counts.sum() / len(counts)
        assert float(((counts - expected) ** 2 / expected).sum()) < len(counts) + 6 * (2 * len(counts)) ** 0.5


def statistics(images: Tensor) -> Tensor:
    """Mean, deviation and one-pixel autocorrelation of each image, (n, 3)."""
    flat = images.double().mean(1)
    centred = flat - flat.mean((1, 2), keepdim=True)
    variance = (centred**2).mean((1, 2))
    next_to = (centred[..., 1:] * centred[..., :-1]).mean((1, 2)) / variance.clamp(min=1e-9)
    return torch.stack([flat.mean((1, 2)), variance.sqrt(), next_to], dim=1)


@pytest.mark.sampled
@pytest.mark.parametrize("name", sorted(set(WITH_CHANCE) - {"glass_blur"}))
def test_own_draws_of_both_sides_give_the_same_statistics(name: str, photographs: Tensor) -> None:
    # Glass is left out: the released loop would have to be compiled; its offsets are tested above.
    severity, count = 3, 60
    image = photographs[0, :, 40:104, 60:124]
    ids = [str(number) for number in range(count)]
    batch = (image / 255).expand(count, 3, 64, 64)
    ours = corruption(name, severity)(batch, ids, 5) * 255
    state = np.random.get_state()
    try:
        np.random.seed(zlib.crc32(name.encode()))
        pixels = image.to(torch.uint8).permute(1, 2, 0).contiguous().numpy()
        theirs = [torch.tensor(corrupt(pixels, severity, name)).permute(2, 0, 1) for _ in ids]
    finally:
        np.random.set_state(state)
    own, library = statistics(ours), statistics(torch.stack(theirs))
    error = ((own.var(0) + library.var(0)) / count).sqrt()
    # A little beside the error of the means: where nothing varies, rounding does.
    assert ((own.mean(0) - library.mean(0)).abs() < 4.5 * error + 1e-3).all(), (own.mean(0), library.mean(0))
    spread = own.std(0) / library.std(0).clamp(min=1e-6)
    assert ((spread > 0.6) & (spread < 1.6) | (library.std(0) < 1e-2)).all(), spread
