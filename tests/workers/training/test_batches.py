from __future__ import annotations

from types import ModuleType

import pytest
import torch
from torch import Tensor

from assay.workers.data.digits import digits
from assay.workers.training import batches as module
from assay.workers.training.batches import Batches
from assay.workers.training.recipe import Augmentation
from tests.support.emulated_device.device import emulated_device

CPU = torch.device("cpu")


def take(
    standins: ModuleType, start: int, stop: int, n: int = 43, batch_size: int = 8
) -> list[tuple[Tensor, Tensor]]:
    made = Batches(standins.Stripes(n), seed=0, image_size=standins.SIZE, batch_size=batch_size, device=CPU)
    return list(made.between(start, stop))


def equal(a: list[tuple[Tensor, Tensor]], b: list[tuple[Tensor, Tensor]]) -> bool:
    return len(a) == len(b) and all(
        torch.equal(images, images_) and torch.equal(labels, labels_)
        for (images, labels), (images_, labels_) in zip(a, b, strict=True)
    )


@pytest.mark.costly
def test_starting_anywhere_gives_the_same_batches(standins: ModuleType) -> None:
    whole = take(standins, 0, 12)
    for start in (1, 5, 7):
        assert equal(take(standins, start, 12), whole[start:])


def test_an_epoch_shows_no_example_twice_and_drops_the_rest(standins: ModuleType) -> None:
    data = standins.Stripes()
    epoch = torch.cat([images for images, _ in take(standins, 0, 5)])
    assert len(epoch) == 40
    matches = (epoch[:, None] == data.images(range(43), standins.SIZE)[None]).flatten(2).all(dim=2)
    assert torch.all(matches.sum(dim=1) == 1)
    assert matches.sum(dim=0).max() == 1


def test_consecutive_steps_move_the_same_image_otherwise(standins: ModuleType) -> None:
    moving = Augmentation(shift=0.2, rotate=20, scale=0.1)
    made = Batches(
        standins.Stripes(1),
        seed=0,
        image_size=standins.SIZE,
        batch_size=1,
        device=CPU,
        augmentation=moving,
    )
    first, second = (images for images, _ in made.between(4, 6))
    assert not torch.equal(first, second)
    ((again, _),) = made.between(5, 6)
    assert torch.equal(again, second)


def test_images_belong_to_their_labels(standins: ModuleType) -> None:
    data = standins.Stripes()
    everything = data.images(range(43), standins.SIZE)
    for images, labels in take(standins, 0, 5):
        found = (images[:, None] == everything[None]).flatten(2).all(dim=2).int().argmax(dim=1)
        assert torch.equal(data.labels[found], labels)


def test_loading_ahead_gives_what_the_cache_gives(
    standins: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = take(standins, 2, 14)
    monkeypatch.setattr(module, "CACHE_BYTES", 0)
    assert equal(take(standins, 2, 14), cached)


def test_a_small_set_is_loaded_once(standins: ModuleType) -> None:
    data = standins.Stripes()
    made = Batches(data, seed=0, image_size=standins.SIZE, batch_size=8, device=CPU)
    list(made.between(0, 20))
    assert data.loads == 1


def test_a_large_set_is_loaded_batch_by_batch_and_only_a_little_ahead(
    standins: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CACHE_BYTES", 0)
    data = standins.Stripes()
    made = Batches(data, seed=0, image_size=standins.SIZE, batch_size=8, device=CPU)
    assert data.loads == 0
    reader = made.between(0, 1000)
    next(reader)
    reader.close()
    assert data.loads < 20


def test_fewer_examples_than_a_batch_are_one_batch(standins: ModuleType) -> None:
    ((_, labels),) = take(standins, 0, 1, n=3)
    assert sorted(labels.tolist()) == [0, 1, 2]


def test_no_examples_are_refused(standins: ModuleType) -> None:
    with pytest.raises(ValueError, match="'stripes' has no training examples"):
        take(standins, 0, 1, n=0)


def of_digits(size: int, device: torch.device) -> Batches:
    moving = Augmentation(shift=0.2, rotate=20, scale=0.1)
    data = digits(None, "train")
    return Batches(data, seed=0, image_size=size, batch_size=8, device=device, augmentation=moving)


def test_a_set_of_bytes_is_kept_whole_where_its_pixels_would_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CACHE_BYTES", len(digits(None, "train")) * 64)
    asked: list[int] = []
    load = Batches._load
    monkeypatch.setattr(Batches, "_load", lambda own, rows: asked.append(len(rows)) or load(own, rows))
    list(of_digits(8, CPU).between(0, 50))
    assert sum(asked) == len(digits(None, "train")) + 1, "one is looked at first"
    asked.clear()
    list(of_digits(9, CPU).between(0, 2))  # resized in floating point
    assert max(asked) == 8


@pytest.mark.costly
@pytest.mark.parametrize("cache", [0, 2**30])
@pytest.mark.parametrize("size", [8, 16])
def test_batches_reach_a_device_without_a_wait_and_with_the_bits_of_the_cpu(
    size: int, cache: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CACHE_BYTES", cache)
    wanted = list(of_digits(size, CPU).between(2, 7))
    with emulated_device() as device:
        made = of_digits(size, device.device)
        device.forget_counts()
        found = list(made.between(2, 7))
        assert not device.uploads
        assert not device.waits
        value = 0 if cache else 1 if size == 8 else 4  # bytes
        transforms, labels_or_rows = 6 * 4, 8
        assert device.sent_bytes == 5 * 8 * (value * size**2 + transforms + labels_or_rows)
        assert equal([(images.cpu(), labels.cpu()) for images, labels in found], wanted)
