from __future__ import annotations

import torch
from torch import Tensor

from assay.workers.evaluation.engine.probe import probe

IMAGES = torch.rand(9, 1, 4, 4, generator=torch.Generator().manual_seed(0))


def plain(images: Tensor) -> Tensor:
    return images.flatten(1)[:, :10]


def test_a_plain_model_raises_nothing() -> None:
    assert probe(plain, IMAGES) == {}
    assert probe(plain, IMAGES[:1]) == {}


def test_random_outputs_are_found_and_not_blamed_on_the_batch() -> None:
    assert probe(lambda images: plain(images) + 0.01 * torch.randn(len(images), 10), IMAGES) == {
        "random_outputs": 9
    }


def test_outputs_that_mix_the_batch_are_found() -> None:
    # Half of each mean is of other images; the one of an uneven group has more of itself.
    found = probe(lambda images: plain(images) - plain(images).mean(0), IMAGES)
    assert found == {"batch_dependent": 9}


def test_logits_for_each_pixel_count_once_for_an_image() -> None:
    assert probe(lambda images: images.expand(-1, 3, -1, -1), IMAGES) == {}
    assert probe(lambda images: images + 0.01 * torch.randn_like(images), IMAGES) == {"random_outputs": 9}


def test_rounding_raises_nothing() -> None:
    assert probe(lambda images: plain(images) * (1 + 1e-6 * len(images)), IMAGES) == {}


def test_infinite_logits_are_no_change() -> None:
    def masked(images: Tensor) -> Tensor:
        logits = plain(images).clone()
        logits[:, 3] = -torch.inf
        return logits

    assert probe(masked, IMAGES) == {}
    assert probe(lambda images: masked(images) + torch.randn(len(images), 10), IMAGES) == {
        "random_outputs": 9
    }
