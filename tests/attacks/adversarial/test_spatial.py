"""Rotations and translations: torchvision's resampling, the worst of the grid, batches, bad values."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torchvision.transforms.functional import InterpolationMode, affine

from assay.attacks.adversarial.spatial import spatial, transformed
from assay.attacks.randomness import Randomness
from assay.models.layers.layers import Classifier
from assay.workers.evaluation.engine.ledger import ExampleOutcomes
from assay.workers.evaluation.engine.protocols import attack_pixel
from tests.support import networks

N = 40
IDS = [f"digit-{number:04d}" for number in range(N)]


@pytest.fixture(scope="module")
def network() -> nn.Module:
    return Classifier(networks.network("gelu"), [networks.MEAN], [networks.STD]).eval()


def run(attack: Any, model: nn.Module, **more: Any) -> ExampleOutcomes:
    images, labels = networks.digits()
    arguments: dict[str, Any] = {
        "batch_size": 16, "keep_adversarial": True, "randomness": Randomness(0, attack.name), **more
    }  # fmt: skip
    return attack_pixel(
        *(attack, model, lambda rows: images[list(rows)], labels[:N], IDS),
        **arguments,
    )


@pytest.mark.sampled
@pytest.mark.parametrize("shape", [(3, 12, 12), (1, 8, 20), (3, 31, 17)])
@pytest.mark.parametrize(("angle", "right", "down"), [(0, 2, -1), (30, 0, 0), (-17, 3, 2), (180, 0, 0)])
def test_resampling_is_torchvisions(shape: tuple[int, int, int], angle: float, right: int, down: int) -> None:
    image = torch.rand(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    other = affine(
        image, -angle, [right, down], 1.0, [0.0, 0.0], interpolation=InterpolationMode.BILINEAR, fill=[0.0]
    )
    triple = torch.tensor([[angle, right / shape[2], down / shape[1]]], dtype=torch.float64)
    ours = transformed(image[None], triple, "zeros")[0]
    # At the border torchvision blends with its fill a second time.
    inside = transformed(torch.ones_like(image)[None], triple, "zeros")[0] > 1 - 1e-6
    assert inside.float().mean() > 0.2
    torch.testing.assert_close(ours[inside], other[inside], rtol=0, atol=1e-5)


def test_a_right_angle_moves_pixels_and_no_shift_changes_none() -> None:
    image = torch.rand(2, 3, 6, 6, generator=torch.Generator().manual_seed(1))
    turned = transformed(image, torch.tensor([[90.0, 0, 0], [0.0, 0, 0]]), "zeros")
    torch.testing.assert_close(turned[0], image[0].rot90(1, (1, 2)), rtol=0, atol=1e-5)
    torch.testing.assert_close(turned[1], image[1], rtol=0, atol=1e-6)
    shifted = transformed(image[:1], torch.tensor([[0.0, 1 / 6, 0.0]]), "zeros")
    torch.testing.assert_close(shifted[0, :, :, 1:], image[0, :, :, :-1], rtol=0, atol=1e-5)
    assert shifted[0, :, :, 0].abs().max() < 1e-5


def test_the_worst_of_the_grid_breaks_an_example(network: nn.Module) -> None:
    """By hand: every triple, one image at a time."""
    images, labels = networks.digits()
    found = run(spatial(max_rotation=8, max_shift=0.04, rotations=5, shifts=3), network)
    for row in range(N):
        right = True
        for angle in (-8, -4, 0, 4, 8):
            for across in (-0.04, 0, 0.04):
                for down in (-0.04, 0, 0.04):
                    triple = torch.tensor([[angle, across, down]])
                    moved = transformed(images[row : row + 1], triple, "zeros").clamp(0, 1)
                    right = right and int(network(moved).argmax()) == int(labels[row])
        assert bool(found.correct[row]) == (right and bool(found.clean_correct[row]))
    assert 5 < int(found.correct.sum()) < int(found.clean_correct.sum())
    assert int(found.forward.max()) <= 1 + 45 + 2
    assert (found.backward == 0).all()


def test_draws_follow_the_example_and_the_seed(network: nn.Module) -> None:
    attack = spatial(search="random", draws=6, max_rotation=8, max_shift=0.04)
    whole, parts = (run(attack, network, batch_size=size) for size in (N, 7))
    assert torch.equal(whole.correct, parts.correct)
    torch.testing.assert_close(whole.adversarial, parts.adversarial, rtol=0, atol=1e-6)
    other = run(attack, network, randomness=Randomness(1, "spatial"))
    assert not torch.equal(whole.adversarial, other.adversarial)  # type: ignore[arg-type]


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_pixels_beyond_the_image(padding: Any) -> None:
    image = torch.full((1, 1, 4, 4), 0.5)
    moved = transformed(image, torch.tensor([[0.0, 0.5, 0.0]]), padding)
    assert moved[0, 0, 0, 0] == pytest.approx(0.0 if padding == "zeros" else 0.5)


def test_nothing_moves_without_room(network: nn.Module) -> None:
    found = run(spatial(max_rotation=0, max_shift=0, rotations=1, shifts=1), network)
    assert torch.equal(found.correct, found.clean_correct)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rotations": 0}, "must be at least 1"),
        ({"max_rotation": 181}, "max_rotation is 181, allowed are 0 to 180"),
        ({"padding": "mirror"}, "padding is 'mirror', allowed are zeros, border, reflection"),
        ({"search": "all"}, "search is 'all', allowed are grid, random"),
    ],
)
def test_bad_values(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        spatial(**wrong)


def test_shapes_are_kept() -> None:
    images: Tensor = torch.rand(2, 3, 9, 5)
    assert transformed(images, torch.zeros(2, 3), "border").shape == images.shape
