"""Segmentation in training: the loss, maps that move with their images, and batches of maps."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from assay.workers.data.formats.segmentation import IGNORE
from assay.workers.data.shapes import shapes
from assay.workers.training import batches as batches_module
from assay.workers.training.augmentation.augment import move_maps, move_pixels
from assay.workers.training.batches import Batches
from assay.workers.training.objective import pixel_loss
from assay.workers.training.recipe import Augmentation

CPU = torch.device("cpu")


def example(classes: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    draws = torch.Generator().manual_seed(0)
    logits = torch.randn(2, classes, 3, 5, generator=draws, dtype=torch.float64)
    maps = torch.randint(0, classes, (2, 3, 5), generator=draws)
    maps[0, 0] = IGNORE
    return logits, maps


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_is_torchs_over_the_pixels_that_have_a_class(smoothing: float) -> None:
    logits, maps = example()
    loss, right, judged = pixel_loss(logits, maps, smoothing)
    expected = functional.cross_entropy(logits, maps, ignore_index=IGNORE, label_smoothing=smoothing)
    torch.testing.assert_close(loss, expected, rtol=0, atol=1e-14)
    assert judged == 25
    assert right == ((logits.argmax(1) == maps) & (maps != IGNORE)).sum()


def test_without_a_class_there_is_no_loss_and_no_gradient() -> None:
    logits = torch.randn(1, 3, 2, 2, requires_grad=True)
    loss, right, judged = pixel_loss(logits, torch.full((1, 2, 2), IGNORE), 0.1)
    loss.backward()
    assert (loss.item(), right.item(), judged.item()) == (0.0, 0, 0)
    assert logits.grad is not None
    assert not logits.grad.any()


def test_maps_move_with_their_images() -> None:
    # An image whose brightness is its class, in large areas: away from the borders both must agree.
    maps = shapes(None, "test").label_maps(range(16), 64)
    maps[maps == IGNORE] = 0
    everything = Augmentation(shift=0.2, rotate=30, scale=0.2, flip=True)
    moved = move_maps(maps, everything, seed=3, step=7)
    # One more than the class: what comes in from outside is 0 in the image.
    pixels = move_pixels((maps[:, None] + 1).float(), everything, seed=3, step=7)[:, 0]
    expected = torch.where(moved == IGNORE, 0, moved + 1)
    near = (pixels - pixels.round()).abs() < 1e-3
    assert near.float().mean() > 0.8
    assert (pixels.round()[near] == expected[near]).float().mean() > 0.995
    assert (moved == IGNORE).any()
    assert moved.dtype == torch.int64


def test_a_flip_moves_maps_exactly_and_nothing_to_do_does_nothing() -> None:
    maps = shapes(None, "test").label_maps(range(40), 64)
    still = move_maps(maps, Augmentation(), seed=0, step=0)
    assert torch.equal(still, maps.to(torch.int64))
    moved = move_maps(maps, Augmentation(flip=True), seed=0, step=0)
    same = (moved == still).flatten(1).all(1)
    mirrored = (moved == still.flip(2)).flatten(1).all(1)
    assert torch.all(same | mirrored)
    assert 5 < mirrored.sum() < 35


def test_batches_of_maps_belong_to_their_images(monkeypatch: pytest.MonkeyPatch) -> None:
    data = shapes(None, "test")
    cached = list(Batches(data, seed=0, image_size=16, batch_size=64, device=CPU).between(0, 4))
    images, maps = cached[0]
    assert (images.shape, maps.shape, maps.dtype) == ((64, 3, 16, 16), (64, 16, 16), torch.uint8)
    found = [
        int((data.images(range(200), 16) == image).flatten(1).all(1).int().argmax()) for image in images[:5]
    ]
    assert torch.equal(data.label_maps(found, 16), maps[:5])
    monkeypatch.setattr(batches_module, "CACHE_BYTES", 0)
    ahead = list(Batches(data, seed=0, image_size=16, batch_size=64, device=CPU).between(0, 4))
    for (a, b), (c, d) in zip(cached, ahead, strict=True):
        assert torch.equal(a, c)
        assert torch.equal(b, d)
