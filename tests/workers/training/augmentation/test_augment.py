from __future__ import annotations

import pytest
import torch
from torch import Tensor

from assay.workers.training.augmentation.augment import mix, move_pixels
from assay.workers.training.recipe import Augmentation

EVERYTHING = Augmentation(shift=0.2, rotate=30, scale=0.2, flip=True)


def images(n: int = 16, channels: int = 2, side: int = 9) -> Tensor:
    return torch.rand(n, channels, side, side, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_keeps_shape_type_and_range(dtype: torch.dtype) -> None:
    moved = move_pixels(images().to(dtype), EVERYTHING, seed=0, step=0)
    assert moved.shape == images().shape
    assert moved.dtype == dtype
    assert moved.min() >= 0
    assert moved.max() <= 1


def test_is_keyed_by_seed_and_step() -> None:
    first = move_pixels(images(), EVERYTHING, seed=0, step=4)
    assert torch.equal(first, move_pixels(images(), EVERYTHING, seed=0, step=4))
    assert not torch.equal(first, move_pixels(images(), EVERYTHING, seed=0, step=5))
    assert not torch.equal(first, move_pixels(images(), EVERYTHING, seed=1, step=4))


def test_leaves_the_global_generator_alone() -> None:
    before = torch.random.get_rng_state()
    move_pixels(images(), EVERYTHING, seed=0, step=0)
    mix(images(), torch.zeros(16, dtype=torch.int64), Augmentation(mixup=0.5), classes=2, seed=0, step=0)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_nothing_to_do_does_nothing() -> None:
    given = images()
    assert move_pixels(given, Augmentation(mixup=1.0), seed=0, step=0) is given


def test_flip_mirrors_about_half_of_the_images_exactly() -> None:
    given = images(n=200).double()
    moved = move_pixels(given, Augmentation(flip=True), seed=0, step=0)
    same = torch.isclose(moved, given, atol=1e-12).flatten(1).all(dim=1)
    mirrored = torch.isclose(moved, given.flip(3), atol=1e-12).flatten(1).all(dim=1)
    assert torch.all(same ^ mirrored)
    assert 60 < mirrored.sum() < 140


def test_shift_moves_a_point_by_at_most_the_given_fraction() -> None:
    side, centre = 21, 10
    point = torch.zeros(100, 1, side, side, dtype=torch.float64)
    point[:, :, centre, centre] = 1
    moved = move_pixels(point, Augmentation(shift=0.2), seed=0, step=0)
    axis = torch.arange(side, dtype=torch.float64)
    offset = torch.stack([(moved.sum((1, 2)) * axis).sum(1), (moved.sum((1, 3)) * axis).sum(1)]) - centre
    assert offset.abs().max() <= 0.2 * side + 1e-9
    assert offset.abs().max() > 0.15 * side
    assert offset.mean().abs() < 0.05 * side
    assert (offset[0] - offset[1]).abs().max() > 0.1 * side


def test_rotation_keeps_the_distance_from_the_centre() -> None:
    side, centre = 41, 20
    point = torch.zeros(50, 1, side, side, dtype=torch.float64)
    point[:, :, centre, 30] = 1
    moved = move_pixels(point, Augmentation(rotate=45), seed=0, step=0)[:, 0]
    axis = torch.arange(side, dtype=torch.float64) - centre
    mass = moved.sum((1, 2))
    x = (moved.sum(1) * axis).sum(1) / mass
    y = (moved.sum(2) * axis).sum(1) / mass
    assert torch.hypot(x, y) == pytest.approx(torch.full((50,), 10.0).numpy(), abs=0.3)
    angle = torch.rad2deg(torch.atan2(y, x))
    assert angle.abs().max() <= 46
    assert angle.max() > 25
    assert angle.min() < -25


def test_mixup_mixes_images_and_labels_by_the_same_weight() -> None:
    given = torch.zeros(6, 1, 2, 2)
    given[:3] = 1  # each of the first three meets one of the last three
    labels = torch.tensor([0, 0, 0, 1, 1, 1])
    mixed, target = mix(given, labels, Augmentation(mixup=1.0), classes=3, seed=0, step=0)
    assert torch.allclose(mixed[:, 0, 0, 0], target[:, 0])
    assert torch.allclose(target.sum(dim=1), torch.ones(6))
    assert torch.all(target[:, 2] == 0)
    assert len(set(mixed[:, 0, 0, 0].tolist())) == 6


def test_without_mixup_labels_stay_numbers() -> None:
    given, labels = images(4), torch.arange(4)
    mixed, target = mix(given, labels, Augmentation(), classes=4, seed=0, step=0)
    assert mixed is given
    assert target is labels
