"""Images of galleries: PNG files, amplified differences, the space of the protocol `paper`, label maps."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
import torch
from PIL import Image

from assay.attacks.threat import Ball
from assay.models.layers.layers import Classifier
from assay.service.contract.gallery import GalleryMaps
from assay.workers.evaluation.engine.gallery.images import (
    MapCandidates,
    PixelSpace,
    amplification,
    attacked_maps,
    colour,
    map_png,
    outside,
    png,
)


def decoded(text: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(text)))


@pytest.mark.parametrize(("channels", "mode"), [(1, "L"), (2, "L"), (3, "RGB"), (4, "L")])
def test_an_image_keeps_its_levels(channels: int, mode: str) -> None:
    image = decoded(png(torch.arange(6).reshape(1, 2, 3).expand(channels, 2, 3) / 255))
    assert (image.mode, image.size) == (mode, (3, 2))
    assert np.asarray(image).reshape(6, -1)[:, 0].tolist() == list(range(6))


def test_values_outside_the_range_are_clamped() -> None:
    pixels = torch.tensor([[[-1.0, 2.0, torch.nan, torch.inf]]])
    assert np.asarray(decoded(png(pixels))).tolist() == [[0, 255, 0, 255]]
    assert outside(pixels)
    assert not outside(torch.tensor([[[0.0, 1.0 + 1e-6]]]))


@pytest.mark.parametrize(
    ("ball", "scale", "expected"),
    [
        (Ball("Linf", 0.25), 1.0, 2.0),
        (Ball("Linf", 1.0), 0.25, 2.0),
        (Ball("L2", 0.25), 1.0, 5.0),
        (None, 1.0, 5.0),
        (Ball("Linf", 0.0), 1.0, 5.0),
    ],
)
def test_the_largest_change_becomes_black_or_white(ball: Ball | None, scale: float, expected: float) -> None:
    assert amplification(torch.tensor([[[0.1, -0.05]]]), ball, scale) == pytest.approx(expected)


@pytest.mark.parametrize("value", [0.0, torch.inf, torch.nan])
def test_a_difference_without_a_finite_size_is_not_amplified(value: float) -> None:
    assert amplification(torch.full((1, 1, 1), value), None) == 1.0


def test_normalised_images_are_shown_as_pixels() -> None:
    model = Classifier(torch.nn.Identity(), (0.2, 0.4, 0.6), (0.5, 0.5, 0.25))
    pixels = torch.rand(1, 3, 4, 4)
    space = PixelSpace.of(model, normalised=True)
    assert torch.allclose(space.pixels(model.normalize(pixels)[0]), pixels[0], atol=1e-6)
    assert torch.equal(PixelSpace.of(model, normalised=False).pixels(pixels[0]), pixels[0])


def test_maps_have_the_colours_of_their_classes() -> None:
    image = decoded(map_png(torch.tensor([[0, 1, 200, 255]])))
    assert image.mode == "P"
    seen = [image.convert("RGB").getpixel((place, 0)) for place in range(4)]
    assert seen == [colour(index) for index in (0, 1, 200, 255)]
    assert len({colour(index) for index in range(256)}) == 256


def kept_maps(lowest: bool) -> GalleryMaps:
    candidates, predictions = MapCandidates({0: 5}), torch.tensor([[[0, 1], [1, 1]]])
    candidates.note_clean(torch.tensor([0]), predictions)
    candidates.note(
        torch.tensor([0]), torch.tensor([lowest]), torch.full((1, 3, 2, 2), 0.75), torch.full((1, 2, 2), 2)
    )
    clean, truth = torch.full((1, 3, 2, 2), 0.5), torch.tensor([[[0, 1], [0, 255]]], dtype=torch.uint8)
    (item,) = attacked_maps(candidates, ["a"], ["mce"], clean, truth, classes=2, ball=Ball("Linf", 0.25))
    return item


def test_segmentation_shows_both_predictions() -> None:
    item = kept_maps(lowest=True)
    assert (item.id, item.rank, item.succeeded, item.loss) == ("a", 5, True, "mce")
    assert (item.accuracy_before, item.accuracy_after) == (pytest.approx(2 / 3), 0.0)
    assert (item.linf, item.factor, item.shown) == (0.25, 2.0, [0, 1, 255])
    assert np.asarray(decoded(item.map_after)).tolist() == [[255, 255], [255, 255]], "2 is no class"
    assert np.asarray(decoded(item.difference)).min() == 255


def test_an_image_that_the_attack_did_not_change_is_shown_as_it_is() -> None:
    item = kept_maps(lowest=False)
    assert (item.succeeded, item.linf, item.map_after) == (False, 0.0, item.map_before)
    assert item.before is None
