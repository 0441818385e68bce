"""Shot noise: a value x becomes Poisson(c x) / c (the noise of counting photons).

Hendrycks and Dietterich 2019 (`imaging/corruption.py`). A value is one of 256 levels, and c or more counts
are white: a draw is from one of 256 distributions on the counts 0..c, by the alias method from one 32-bit
word.

    x' = min(Poisson(c x) / c, 1)
    c = PHOTONS[constants][severity - 1]
"""

from __future__ import annotations

import functools
from dataclasses import replace

import torch
from torch import Tensor

from assay.attacks.corruptions.imaging.alias_sampling import AliasTable, alias_table
from assay.attacks.corruptions.imaging.constants import Constants, Released, constant
from assay.attacks.corruptions.imaging.corruption import IMAGENET_C, TOP, Corruption, Draws, Severity
from assay.attacks.randomness import Source

__all__ = ["shot_noise"]

PAPER = IMAGENET_C
FACTS = {"group": "noise", "milliseconds": 0.89}
PHOTONS: Released[int] = {
    "imagenet_c": (60, 25, 12, 5, 3),
    "cifar_c": (500, 250, 100, 75, 50),
    "tiny_imagenet_c": (250, 100, 50, 30, 15),
}


def shot_noise(*, severity: Severity = 1, constants: Constants = "imagenet_c") -> Corruption:
    """Poisson noise: fewer photons, more noise.

    Args:
        severity: 1 to 5; in ImageNet-C white is 60, 25, 12, 5 and 3 photons.
    """
    apply = functools.partial(_apply, photons=constant(constants, severity, PHOTONS))
    return Corruption("shot_noise", severity, apply, _draw)


def _draw(source: Source, channels: int, height: int, width: int) -> Draws:
    return (source.words((channels, height, width)),)


def _apply(levels: Tensor, chance: Tensor, *, photons: int) -> Tensor:
    return photon_table(photons, levels.device).sample(levels.to(torch.int32), chance)  # (n, C, H, W)


def probabilities(photons: int) -> Tensor:
    """Probabilities of counts per level, float64 (256, photons + 1); the last column is `photons` or more."""
    mean = (torch.arange(TOP + 1, dtype=torch.float64) / TOP * photons)[:, None]
    counts = torch.arange(photons, dtype=torch.float64)
    below = torch.exp(torch.xlogy(counts, mean) - mean - torch.lgamma(counts + 1))
    rest = (1 - below.sum(1, keepdim=True)).clamp(min=0)
    return torch.cat([below, rest], dim=1)


@functools.lru_cache(maxsize=16)
def photon_table(photons: int, device: torch.device = torch.device("cpu")) -> AliasTable:  # noqa: B008
    """Alias tables from each level to its noisy level, on a device."""
    counts = torch.arange(photons + 1, dtype=torch.float64)
    table = alias_table(probabilities(photons), (counts / photons * TOP).floor())
    return replace(table, thresholds=table.thresholds.to(device), outcomes=table.outcomes.to(device))
