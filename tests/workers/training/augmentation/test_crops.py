"""Random crops of images and their label maps: what is cut, what is padded, and what the draws depend on."""

from __future__ import annotations

import dataclasses
import random
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.workers.data.formats.segmentation import IGNORE, SegmentationArrays
from assay.workers.training.augmentation.crops import CropExamples, random_crop
from assay.workers.training.batches import Source
from assay.workers.training.recipe import Crops, Recipe
from assay.workers.training.source import Batching, source_of

MEAN = (0.25, 0.5, 0.75)


def crops(**changes: Any) -> Crops:
    plain = {"size": 8, "short_side": None, "scales": (1.0, 1.0), "flip": False, "photometric": False}
    return Crops(**plain | changes)


def picture(height: int, width: int) -> tuple[Tensor, Tensor]:
    """Four quarters, whose label is also their brightness divided by 50."""
    labels = torch.zeros(height, width, dtype=torch.uint8)
    labels[height // 2 :] += 2
    labels[:, width // 2 :] += 1
    return (labels * 50).expand(3, -1, -1).clone(), labels


def numbered(n: int) -> SegmentationArrays:
    generator = torch.Generator().manual_seed(0)
    return SegmentationArrays(
        name="numbered",
        class_names=("a", "b"),
        ids=[f"image {index}" for index in range(n)],
        pixels=torch.randint(0, 256, (n, 3, 12, 16), generator=generator, dtype=torch.uint8),
        maps=torch.randint(0, 2, (n, 12, 16), generator=generator, dtype=torch.uint8),
        mean=MEAN,
        std=(0.2, 0.2, 0.2),
    )


def test_a_crop_at_its_own_size_is_a_part_of_the_file() -> None:
    data = numbered(1)
    pixels, labels = data.example(0)
    found = set()
    for seed in range(200):
        image, truth = random_crop(pixels, labels, crops(), MEAN, random.Random(seed))
        places = [
            (top, left)
            for top in range(5)
            for left in range(9)
            if torch.equal(image, pixels[:, top : top + 8, left : left + 8] / 255)
        ]
        assert len(places) == 1
        (top, left) = places[0]
        assert torch.equal(truth, labels[top : top + 8, left : left + 8])
        found.add(places[0])
    assert {top for top, _ in found} == set(range(5))
    assert {left for _, left in found} == set(range(9))


def test_what_an_image_does_not_fill_has_the_mean_and_no_class() -> None:
    pixels, labels = picture(4, 6)
    image, truth = random_crop(pixels, labels, crops(), MEAN, random.Random(0))
    assert torch.equal(image[:, :4, :6], pixels / 255)
    assert torch.equal(truth[:4, :6], labels)
    outside = torch.ones(8, 8, dtype=torch.bool)
    outside[:4, :6] = False
    assert (truth[outside] == IGNORE).all()
    assert torch.equal(image[:, outside], torch.tensor(MEAN)[:, None].expand(3, int(outside.sum())))


def test_image_and_map_are_changed_together() -> None:
    pixels, labels = picture(60, 80)
    mirrored = sizes = 0
    for seed in range(60):
        image, truth = random_crop(
            pixels, labels, crops(size=96, scales=(0.5, 2.0), flip=True), MEAN, random.Random(seed)
        )
        judged = truth != IGNORE
        expected = truth[judged] * 50 / 255
        # Only pixels at the borders of the quarters are mixtures.
        assert ((image[0][judged] - expected).abs() < 1e-6).float().mean() > 0.9
        mirrored += bool(truth[0, 0] == 1)
        sizes += int(judged.sum())
    assert 15 < mirrored < 45
    # Of 60 x 80 pixels at scales from 0.5 to 2, cut off at 96 x 96.
    assert 0.5 * 60 * 80 < sizes / 60 < 96 * 96


@pytest.mark.parametrize(("short_side", "side"), [(None, 40), (20, 20), (80, 80)])
def test_the_short_side_is_set_before_the_change_of_size(short_side: int | None, side: int) -> None:
    pixels, labels = picture(40, 60)
    _, truth = random_crop(pixels, labels, crops(size=200, short_side=short_side), MEAN, random.Random(1))
    judged = truth != IGNORE
    assert int(judged.any(dim=1).sum()) == side
    assert int(judged.any(dim=0).sum()) == side * 3 // 2


def test_photometric_distortion_leaves_the_map_and_the_padding_alone() -> None:
    data = numbered(1)
    plain = random_crop(*data.example(0), crops(size=20), MEAN, random.Random(5))
    changed = random_crop(*data.example(0), crops(size=20, photometric=True), MEAN, random.Random(5))
    assert torch.equal(plain[1], changed[1])
    padding = plain[1] == IGNORE
    assert torch.equal(plain[0][:, padding], changed[0][:, padding])
    assert not torch.equal(plain[0], changed[0])


def test_a_crop_depends_on_image_and_seed_alone() -> None:
    data = numbered(3)
    settings = crops(scales=(0.5, 2.0), flip=True, photometric=True)
    made, again = CropExamples(data, settings), CropExamples(data, settings)
    assert made.ids == data.ids
    random.seed(1)
    first = [torch.cat([part.flatten().float() for part in made.make(index, 7)[:2]]) for index in range(3)]
    random.seed(2)
    for index in (2, 0, 1):
        image, truth, _ = again.make(index, 7)
        assert torch.equal(torch.cat([image.flatten(), truth.flatten().float()]), first[index])
    assert not torch.equal(made.make(0, 7).image, made.make(0, 8).image)


def batches(n: int, **changes: Any) -> Source:
    recipe = Recipe(epochs=1, learning_rate=0.1, crops=crops(scales=(0.5, 2.0), flip=True, photometric=True))
    settings: dict[str, Any] = {
        "seed": 7,
        "image_size": 5,
        "batch_size": 4,
        "device": torch.device("cpu"),
    } | changes
    return source_of(numbered(n), recipe, Batching(**settings))


def test_batches_of_crops_whoever_makes_them() -> None:
    source = batches(10)
    assert (source.batch_size, source.steps_per_epoch) == (4, 2)
    with closing(source.between(0, 5)) as made:
        steps = list(made)
    assert [(step.images.shape, step.images.dtype) for step in steps] == [((4, 3, 8, 8), torch.float32)] * 5
    assert [(step.truth.shape, step.truth.dtype) for step in steps] == [((4, 8, 8), torch.uint8)] * 5
    with closing(batches(10, workers=2).between(3, 5)) as elsewhere:
        for step, other in zip(steps[3:], elsewhere, strict=True):
            assert torch.equal(step.images, other.images)
            assert torch.equal(step.truth, other.truth)
    assert batches(3).batch_size == 3
    with pytest.raises(ValueError, match="no training examples"):
        batches(0)


@pytest.mark.trains
def test_an_interrupted_training_ends_with_the_same_bits(standins: ModuleType, tmp_path: Path) -> None:
    settings = crops(scales=(0.5, 2.0), flip=True, photometric=True)
    recipe = Recipe(epochs=3, learning_rate=0.1, schedule="polynomial", optimiser="sgd", crops=settings)

    def weights(folder: Path, **changes: object) -> bytes:
        model = nn.Sequential(nn.Conv2d(3, 2, 3, padding=1), nn.Dropout(0.1))
        with torch.no_grad():
            model[0].weight.fill_(0.1)
            model[0].bias.zero_()
        # Not the size of the crops: whole images are not asked for.
        changes = {"classifier": model, "data": numbered(10), "recipe": recipe, "image_size": 5, **changes}
        return bytes(standins.run(folder, batch_size=4, **changes).weights_path.read_bytes())

    undisturbed = weights(tmp_path / "whole")
    for step in (1, 3):
        with pytest.raises(KeyboardInterrupt):
            weights(tmp_path / "cut", checkpoint_seconds=0.0, report=standins.stop_at(step))
    assert weights(tmp_path / "cut") == undisturbed
    other = dataclasses.replace(recipe, crops=dataclasses.replace(settings, flip=False))
    assert weights(tmp_path / "other", recipe=other) != undisturbed
    with pytest.raises(ValueError, match=r"another training \(different: recipe\)"):
        weights(tmp_path / "cut", recipe=other)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [({"size": 0}, "size"), ({"short_side": 0}, "short_side"), ({"scales": (2.0, 1.0)}, "scales")],
)
def test_values_out_of_range_are_named(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=f"{named} is .*; allowed"):
        crops(**wrong)
