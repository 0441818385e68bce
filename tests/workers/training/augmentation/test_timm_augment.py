from __future__ import annotations

import random
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from timm.data.auto_augment import posterize
from timm.data.distributed_sampler import RepeatAugSampler
from timm.data.random_erasing import RandomErasing
from timm.data.transforms import RandomResizedCropAndInterpolation
from torch import Tensor

from assay.workers.data.image_folder import image_folder
from assay.workers.training import order as order_module
from assay.workers.training.augmentation.timm_augment import TimmExamples, _posterize, mix_batch
from assay.workers.training.batch_workers import MadeBatches
from assay.workers.training.batches import Batches
from assay.workers.training.randomness import library_generators_restored, seed_libraries
from assay.workers.training.recipe import Augmentation
from tests.support.emulated_device.device import emulated_device

EVERYTHING = Augmentation(
    flip=True, smallest_crop=0.5, rand_augment="rand-m9-mstd0.5-inc1", erase=0.5, mixup=0.8, cutmix=1.0
)
SIDE = 16


class Pictures:
    """Random images in memory."""

    task = "classification"
    classes = 3
    size = (SIDE, SIDE)

    def __init__(self, n: int = 12, channels: int = 3) -> None:
        draws = torch.Generator().manual_seed(0)
        self.channels = channels
        self.mean, self.std = (0.4, 0.5, 0.6)[:channels], (0.2, 0.25, 0.3)[:channels]
        self.pixels = torch.rand(n, channels, SIDE, SIDE, generator=draws)
        self.labels = torch.arange(n) % 3
        self.ids = [str(index) for index in range(n)]

    def images(self, indices: list[int], size: int) -> Tensor:
        assert size == SIDE
        return self.pixels[indices]


def made(data: Pictures, augmentation: Augmentation, seed: int = 0) -> list[Tensor]:
    """Every image, float32 (C, S, S) in the units of pixels, changed by the draws of a seed."""
    examples = TimmExamples(data, augmentation, SIDE)  # type: ignore[arg-type]
    with library_generators_restored():
        found = [examples.make(index, seed).image for index in range(len(data.ids))]
    return [image / 255 if image.dtype == torch.uint8 else image for image in found]


@pytest.mark.parametrize("channels", [1, 3])
def test_images_keep_their_shape_and_are_changed(channels: int) -> None:
    data = Pictures(channels=channels)
    changed = torch.stack(made(data, EVERYTHING))
    assert changed.shape == data.pixels.shape
    assert (changed - data.pixels).abs().flatten(1).amax(1).min() > 0.1


def test_images_of_other_channels_are_refused() -> None:
    with pytest.raises(ValueError, match="1 or 3 channels: got 2"):
        made(Pictures(channels=2), EVERYTHING)


def test_an_example_is_its_seeds_and_nothing_elses() -> None:
    first = made(Pictures(), EVERYTHING)
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)
    assert all(torch.equal(one, two) for one, two in zip(first, made(Pictures(), EVERYTHING), strict=True))
    others = made(Pictures(), EVERYTHING, seed=1)
    assert not any(torch.equal(one, two) for one, two in zip(first, others, strict=True))


def test_a_flip_alone_is_exact() -> None:
    data = Pictures(n=1)
    data.pixels = (data.pixels * 255).round() / 255
    data.pixels = data.pixels.repeat(40, 1, 1, 1)
    data.ids, data.labels = [str(index) for index in range(40)], torch.zeros(40, dtype=torch.int64)
    examples = TimmExamples(data, Augmentation(flip=True), SIDE)  # type: ignore[arg-type]
    with library_generators_restored():
        found = [examples.make(index, seed=index).image / 255 for index in range(40)]
    mirrored = [torch.equal(image, data.pixels[0].flip(2)) for image in found]
    assert all(one or torch.equal(image, data.pixels[0]) for one, image in zip(mirrored, found, strict=True))
    assert 10 < sum(mirrored) < 30


def test_crops_are_cut_from_the_file_at_its_own_size(tmp_path: Path) -> None:
    """The pixels of timm's transform of the file, which is larger than the model's images and not square."""
    noise = np.random.default_rng(0).integers(0, 256, (90, 120, 3), dtype=np.uint8)
    for name in ("a", "b"):
        (tmp_path / "set" / name).mkdir(parents=True)
        Image.fromarray(noise).save(tmp_path / "set" / name / "0.png")
    data = image_folder(tmp_path, "train", folder="set", splits="all")
    crop = RandomResizedCropAndInterpolation(SIDE, scale=(0.3, 1.0), interpolation="bicubic")
    with library_generators_restored():
        seed_libraries(5)
        expected = torch.from_numpy(np.array(crop(Image.fromarray(noise)))).permute(2, 0, 1)
        examples = TimmExamples(data, Augmentation(smallest_crop=0.3), SIDE)
        for index in (1, 0):
            found = examples.make(index, seed=5)
            assert torch.equal(found.image, expected)
            assert found.truth == data.labels[index]


def test_erasing_changes_one_rectangle_of_some_images() -> None:
    data, cpu = Pictures(n=200), torch.device("cpu")
    data.pixels = data.pixels[:1].expand(200, -1, -1, -1)
    examples = TimmExamples(data, Augmentation(erase=0.25), SIDE)  # type: ignore[arg-type]
    made = MadeBatches(examples, seed=0, batch_size=200, device=cpu, noise=(data.mean, data.std))
    (batch,) = made.between(0, 1)
    as_it_was = (data.pixels[0] * 255).round() / 255
    values = []
    for image in batch.images:
        changed = (image != as_it_was).any(0)  # (16, 16)
        if changed.any():
            assert changed.sum() == changed.any(1).sum() * changed.any(0).sum()
            noise = (image - torch.tensor(data.mean).view(3, 1, 1)) / torch.tensor(data.std).view(3, 1, 1)
            values.append(noise[:, changed].flatten())
    assert 30 < len(values) < 70
    assert torch.cat(values).mean().item() == pytest.approx(0, abs=0.05)
    assert torch.cat(values).std().item() == pytest.approx(1, abs=0.05)


def test_rectangles_are_timms() -> None:
    examples = TimmExamples(Pictures(n=1), Augmentation(erase=0.5), SIDE)  # type: ignore[arg-type]
    erasing = RandomErasing(0.5, mode="pixel", device="cpu")
    seen = set()
    with library_generators_restored():
        for seed in range(50):
            top, left, bottom, right = examples.make(0, seed).erased
            seed_libraries(seed)
            wanted = erasing(torch.full((3, SIDE, SIDE), torch.nan))
            inside = torch.zeros(SIDE, SIDE, dtype=torch.bool)
            inside[top:bottom, left:right] = True
            assert torch.equal(inside.expand(3, -1, -1), ~wanted.isnan())
            seen.add(bottom - top)
    assert 0 in seen
    assert len(seen) > 5


def test_mixing_is_keyed_and_leaves_the_generators_as_they_were() -> None:
    def states() -> tuple[object, ...]:
        numpys = np.random.get_state()
        return random.getstate(), numpys[1].tolist(), numpys[2], torch.random.get_rng_state().tolist()

    def mixed(seed: int, step: int) -> tuple[Tensor, Tensor]:
        data = Pictures()
        return mix_batch(data.pixels, data.labels, EVERYTHING, classes=3, seed=seed, step=step)

    before, first = states(), mixed(0, 4)
    assert states() == before
    assert all(torch.equal(one, two) for one, two in zip(first, mixed(0, 4), strict=True))
    for other in (mixed(0, 5), mixed(1, 4)):
        assert not torch.equal(first[0], other[0])


def test_mixing_on_a_device_has_the_bits_of_the_cpu_and_waits_for_nothing() -> None:
    data = Pictures(5)
    with emulated_device() as device:
        for step in range(4):
            options: dict[str, Any] = {"classes": 3, "seed": 0, "step": step}
            images, labels = data.pixels.to(device.device), data.labels.to(device.device)
            waits, uploads = device.waits.total(), len(device.uploads)
            found = mix_batch(images, labels, EVERYTHING, **options)
            assert (device.waits.total(), len(device.uploads)) == (waits, uploads)
            wanted = mix_batch(data.pixels, data.labels, EVERYTHING, **options)
            assert all(torch.equal(one.cpu(), other) for one, other in zip(found, wanted, strict=True))


def test_cutmix_labels_have_the_share_of_the_pixels() -> None:
    given = torch.zeros(6, 1, 8, 8)
    given[:3] = 1  # each of the first three meets one of the last three
    labels = torch.tensor([0, 0, 0, 1, 1, 1])
    seen = set()
    for step in range(20):
        mixed, target = mix_batch(given, labels, Augmentation(cutmix=1.0), classes=3, seed=0, step=step)
        assert torch.allclose(mixed.mean((1, 2, 3)), target[:, 0], atol=1e-6)
        assert set(mixed.unique().tolist()) <= {0.0, 1.0}
        seen.add(round(target[0, 0].item(), 4))
    assert len(seen) > 5
    assert given[:3].min() == 1


@pytest.mark.parametrize("n", [1, 5])
def test_the_middle_of_an_odd_batch_is_mixed_with_itself(n: int) -> None:
    data, middle = Pictures(n), n // 2
    for step in range(4):
        mixed, target = mix_batch(data.pixels, data.labels, EVERYTHING, classes=3, seed=0, step=step)
        assert (len(mixed), len(target)) == (n, n)
        torch.testing.assert_close(mixed[middle], data.pixels[middle])
        assert target[middle, data.labels[middle]] == pytest.approx(1)
        even = [row for row in range(n) if row != middle]
        if even:
            pairs = mix_batch(data.pixels[even], data.labels[even], EVERYTHING, classes=3, seed=0, step=step)
            assert torch.equal(mixed[even], pairs[0])
            assert torch.equal(target[even], pairs[1])


@pytest.mark.parametrize("way", ["memory", "made"])
def test_repeated_augmentation_visits_the_examples_of_timms_sampler(
    standins: ModuleType, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    def order(n: int, *, seed: int, epoch: int) -> Tensor:
        return torch.randperm(n, generator=torch.Generator().manual_seed(epoch))

    monkeypatch.setattr(order_module, "epoch_order", order)
    data, cpu = standins.Stripes(40), torch.device("cpu")
    source: Batches | MadeBatches
    if way == "memory":
        repeated = Augmentation(repeats=3)
        source = Batches(data, seed=0, image_size=8, batch_size=8, device=cpu, augmentation=repeated)
    else:
        examples = TimmExamples(data, Augmentation(), 8)
        source = MadeBatches(examples, seed=0, batch_size=8, device=cpu, repeats=3)
    sampler = RepeatAugSampler(data, num_replicas=1, rank=0)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        wanted = data.images(list(sampler), 8)
        found = torch.cat([batch.images for batch in source.between(5 * epoch, 5 * epoch + 5)])
        torch.testing.assert_close(found, wanted, rtol=0, atol=0.5 / 255 + 1e-6)


def test_posterizing_to_no_bits_is_black_and_else_timms() -> None:
    image = Image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3))
    assert _posterize(image, 0).getextrema() == ((0, 0), (0, 0), (0, 0))
    for bits in range(1, 9):
        assert np.array_equal(_posterize(image, bits), posterize(image, bits))


def test_every_magnitude_of_the_published_policy_runs() -> None:
    data = Pictures(2)
    augmentation = Augmentation(rand_augment="rand-m10-mstd0-inc1-n15")
    examples = TimmExamples(data, augmentation, 16)
    assert {tuple(examples.make(0, seed).image.shape[1:]) for seed in range(30)} == {(16, 16)}
