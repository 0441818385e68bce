"""The three scripts of the authors, from their formulas: constants and steps."""

from __future__ import annotations

import importlib

import cv2
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_sample_images
from torch import Tensor

from assay.attacks.corruptions.frost import frost
from assay.attacks.corruptions.imaging.constants import SIDES
from assay.attacks.corruptions.imaging.corruption import Corruption
from assay.attacks.corruptions.imaging.textures import TEXTURES, folder
from assay.attacks.corruptions.shot_noise import photon_table
from tests.support.corruption_formulas import FORMULAS, expected
from tests.support.script_constants import SCRIPTS, TABLES, script_constant

# Share of values that may differ, by one level: ties, which the last operation's rounding decides.
TIES = {"brightness": 0.02, "saturate": 0.08, "defocus_blur": 0.01, "gaussian_blur": 0.01}
FEW = 0.005
SEVERITIES = (1, 2, 3, 4, 5)
scripts = pytest.mark.parametrize("script", SCRIPTS)


def corruption(name: str, severity: int, constants: str) -> Corruption:
    module = importlib.import_module(f"assay.attacks.corruptions.{name}")
    made: Corruption = getattr(module, name)(severity=severity, constants=constants)
    return made


def photograph(side: int) -> Image.Image:
    pixels = load_sample_images().images[0][150:374, 250:474]
    return Image.fromarray(pixels).resize((side, side), Image.Resampling.BOX)


def corrupted(kernel: Corruption, image: Image.Image) -> tuple[NDArray[np.uint8], list[Tensor]]:
    levels = torch.tensor(np.array(image)).permute(2, 0, 1)[None].float()
    draws = kernel.draws(("a",), levels.shape[1:], 0)
    changed = kernel.apply(levels, *draws)[0].permute(1, 2, 0)
    return changed.to(torch.uint8).numpy(), [part[0] for part in draws]


@pytest.mark.sampled
@scripts
@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("name", FORMULAS)
def test_same_draws_give_the_levels_of_the_script(name: str, severity: int, script: str) -> None:
    image = photograph(SCRIPTS[script])
    found, draws = corrupted(corruption(name, severity, script), image)
    numbers = script_constant(name, script, severity)
    wanted = expected(name, numbers, np.array(image), [part.numpy() for part in draws], script)
    difference = np.abs(found.astype(int) - wanted)
    assert difference.max() <= 1
    assert (difference > 0).mean() <= TIES.get(name, FEW)
    assert np.abs(found.astype(int) - np.array(image)).max() > 0


def test_every_corruption_of_the_scripts_is_compared() -> None:
    assert set(TABLES) == {*FORMULAS, "shot_noise", "impulse_noise", "frost"}
    assert dict(SIDES) == SCRIPTS


@pytest.mark.sampled
@scripts
@pytest.mark.parametrize("severity", SEVERITIES)
def test_noise_of_single_values_has_the_probabilities_of_the_script(severity: int, script: str) -> None:
    side = SCRIPTS[script]
    share = script_constant("impulse_noise", script, severity)
    grey = torch.full((8, 3, side, side), 100 / 255)
    ids = [str(number) for number in range(8)]
    found = corruption("impulse_noise", severity, script)(grey, ids, 0) * 255
    spread = 5 * (share / found.numel()) ** 0.5
    assert float((found > 200).double().mean()) == pytest.approx(share / 2, abs=spread)
    assert float((found < 50).double().mean()) == pytest.approx(share / 2, abs=spread)
    photons = script_constant("shot_noise", script, severity)
    found = corruption("shot_noise", severity, script)(grey, ids, 0).double() * photons
    # Counts of mean and variance 100 / 255 photons, but for levels that were truncated and whites cut off.
    mean = photons * 100 / 255
    assert float(found.mean()) == pytest.approx(mean, rel=0.02 if photons > 5 else 0.1)
    assert float(found.var()) == pytest.approx(mean, rel=0.06 if photons > 12 else 0.35)
    assert photon_table(photons).bits == photons.bit_length()


@pytest.mark.sampled
@scripts
@pytest.mark.parametrize("severity", SEVERITIES)
def test_frost_is_a_crop_of_one_of_five_photographs_at_the_size_of_the_script(
    severity: int, script: str
) -> None:
    image = photograph(SCRIPTS[script])
    found, (place,) = corrupted(corruption("frost", severity, script), image)
    number, top, left = place.tolist()
    ice = cv2.imread(str(folder() / TEXTURES[number]))[..., ::-1]
    scale = {"imagenet_c": 1, "cifar_c": 0.2, "tiny_imagenet_c": 0.3}[script]
    if scale != 1:
        ice = cv2.resize(ice, (0, 0), fx=scale, fy=scale)
    assert top < len(ice) - image.height
    assert left < ice.shape[1] - image.width
    scene, share = script_constant("frost", script, severity)
    ice = ice[top : top + image.height, left : left + image.width]
    wanted = np.clip(scene * np.array(image) + share * ice, 0, 255).astype(np.uint8)
    difference = np.abs(found.astype(int) - wanted)
    assert difference.max() <= 1
    # OpenCV 5 interpolates in floating point, OpenCV 3 in whole numbers.
    assert (difference > 0).mean() <= (0.1 if script == "tiny_imagenet_c" else 0)


def test_the_sixth_photograph_is_drawn_by_the_fork_alone() -> None:
    ids = [str(number) for number in range(200)]
    for script in SCRIPTS:
        (places,) = corruption("frost", 1, script).draws(ids, (3, 32, 32), 0)
        assert set(places[:, 0].tolist()) == {0, 1, 2, 3, 4}
    (places,) = corruption("frost", 1, "imagecorruptions").draws(ids, (3, 32, 32), 0)
    assert set(places[:, 0].tolist()) == {0, 1, 2, 3, 4, 5}
    assert frost(severity=1).files is not None
