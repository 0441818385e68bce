from __future__ import annotations

from types import ModuleType

import pytest
import torch
from torch import Tensor

from assay.workers.training import batches as module
from assay.workers.training.batches import Batches
from assay.workers.training.recipe import Augmentation

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
