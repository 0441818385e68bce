"""The released corruptions (`imagecorruptions-imaug`), with Assay's draws in place of theirs."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import imagecorruptions.corruptions
import numpy as np
import pytest
import skimage.util.noise
import torch
from imagecorruptions import corrupt
from torch import Tensor

from assay.attacks.corruptions.imaging.corruption import Corruption, Draws
from assay.attacks.corruptions.imaging.shuffle import shuffle
from assay.attacks.corruptions.shot_noise import PHOTONS


def released(corruption: Corruption, levels: Tensor, draws: Draws, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    """The library's corruption of one image with the draws of one example.

    Args:
        corruption: Ours; its name and severity choose the library's.
        levels: (3, H, W), whole numbers in 0..255.
        draws: Of this example, as `Corruption.draws` gives them (one row).
        monkeypatch: Puts the draws in the place of numpy's.
    """
    hand_over = HANDED.get(corruption.name)
    with monkeypatch.context() as patch:
        if hand_over is not None:
            hand_over(patch, [part[0] for part in draws], levels, corruption)
        image = levels.to(torch.uint8).permute(1, 2, 0).contiguous().numpy()
        changed = corrupt(image, severity=corruption.severity, corruption_name=corruption.name)
    return torch.tensor(changed).permute(2, 0, 1).float()


def _normal(patch: pytest.MonkeyPatch, noise: np.ndarray[Any, Any]) -> None:
    def draw(loc: float = 0.0, scale: float = 1.0, size: Any = None) -> np.ndarray[Any, Any]:
        assert noise.shape == tuple(size), (noise.shape, size)
        return np.asarray(loc + scale * noise)

    patch.setattr(np.random, "normal", draw)


def _noise(patch: pytest.MonkeyPatch, draws: list[Tensor], levels: Tensor, corruption: Corruption) -> None:
    _normal(patch, draws[0].double().permute(1, 2, 0).numpy())


def _shot(patch: pytest.MonkeyPatch, draws: list[Tensor], levels: Tensor, corruption: Corruption) -> None:
    """Counts behind Assay's levels: the smallest that give them."""
    photons = PHOTONS["imagenet_c"][corruption.severity - 1]
    of_count = (torch.arange(photons + 1, dtype=torch.float64) / photons * 255).floor()
    counts = torch.searchsorted(of_count, corruption.apply(levels[None], draws[0][None])[0].double())
    patch.setattr(np.random, "poisson", lambda _: counts.permute(1, 2, 0).numpy())


def _impulse(patch: pytest.MonkeyPatch, draws: list[Tensor], levels: Tensor, corruption: Corruption) -> None:
    """One word decides whether and by what a value is replaced; the library draws two numbers."""
    chance = draws[0].double().permute(1, 2, 0).numpy() / 2**32 + 0.5
    amount = (0.03, 0.06, 0.09, 0.17, 0.27)[corruption.severity - 1]
    answers = iter([chance, np.where(chance < amount / 2, 0.0, 1.0)])
    random = SimpleNamespace(default_rng=lambda _: SimpleNamespace(random=lambda _: next(answers)))
    patch.setattr(skimage.util.noise, "np", _Numpy(random))


class _Numpy:
    """numpy with another `random`."""

    def __init__(self, random: Any) -> None:
        self.random = random

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


def _angle(patch: pytest.MonkeyPatch, draws: list[Tensor], levels: Tensor, corruption: Corruption) -> None:
    patch.setattr(np.random, "uniform", lambda low, high: float(draws[0]))


def _snow(patch: pytest.MonkeyPatch, draws: list[Tensor], levels: Tensor, corruption: Corruption) -> None:
    """The library draws noise for the whole image, and uses the middle."""
    _angle(patch, draws, levels, corruption)
    height, width = levels.shape[-2:]
    rows, columns = draws[1].shape
    noise = np.zeros((height, width))
    top, left = (height - rows) // 2, (width - columns) // 2
    noise[top : top + rows, left : left + columns] = draws[1].double().numpy()
    _normal(patch, noise)


def _frost(patch: pytest.MonkeyPatch, draws: list[Tensor], levels: Tensor, corruption: Corruption) -> None:
    numbers = iter(draws[0].tolist())

    def randint(*limits: int) -> int:
        number = int(next(numbers))
        assert (limits[0] if len(limits) > 1 else 0) <= number < limits[-1]
        return number

    patch.setattr(np.random, "randint", randint)


def _uniform_stream(patch: pytest.MonkeyPatch, chance: np.ndarray[Any, Any]) -> None:
    """Uniform numbers, given in [-1, 1], in request order."""
    used = 0

    def draw(low: float, high: float, size: Any) -> np.ndarray[Any, Any]:
        nonlocal used
        assert low == -high
        count = int(np.prod(size))
        part = chance[used : used + count].reshape(size)
        used += count
        return np.asarray(high * part)

    patch.setattr(np.random, "uniform", draw)


def _stream(patch: pytest.MonkeyPatch, draws: list[Tensor], levels: Tensor, corruption: Corruption) -> None:
    _uniform_stream(patch, draws[0].double().flatten().numpy())


def _spatter(patch: pytest.MonkeyPatch, draws: list[Tensor], levels: Tensor, corruption: Corruption) -> None:
    _normal(patch, draws[0][0].double().numpy())


def _glass(patch: pytest.MonkeyPatch, draws: list[Tensor], levels: Tensor, corruption: Corruption) -> None:
    """Our shuffling for the library's loop: a test of its own holds them against each other, bit for bit."""

    def shuffled(height: int, width: int, image: np.ndarray[Any, Any], constants: Any, seed: Any) -> Any:
        del height, width, seed
        planes = torch.tensor(image).permute(2, 0, 1)[None]
        return shuffle(planes, draws[0][None], constants[1])[0].permute(1, 2, 0).contiguous().numpy()

    patch.setattr(imagecorruptions.corruptions, "_shuffle_pixels_njit_glass_blur", shuffled)


HANDED: dict[str, Callable[[pytest.MonkeyPatch, list[Tensor], Tensor, Corruption], None]] = {
    "gaussian_noise": _noise,
    "speckle_noise": _noise,
    "shot_noise": _shot,
    "impulse_noise": _impulse,
    "motion_blur": _angle,
    "snow": _snow,
    "frost": _frost,
    "fog": _stream,
    "elastic_transform": _stream,
    "spatter": _spatter,
    "glass_blur": _glass,
}
