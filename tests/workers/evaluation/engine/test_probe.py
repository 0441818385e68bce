from __future__ import annotations

import torch
from torch import Tensor, nn

from assay.models.layers.token_model import TokenModel
from assay.workers.data.formats.text import Documents
from assay.workers.data.formats.vocabulary import Vocabulary
from assay.workers.evaluation.engine.probe import probe, probe_shard
from tests.support.shards import Given, shard

IMAGES = torch.rand(9, 1, 4, 4, generator=torch.Generator().manual_seed(0))


def plain(images: Tensor) -> Tensor:
    return images.flatten(1)[:, :10]


class Noisy(nn.Module):
    """Draws random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, images: Tensor) -> Tensor:
        return self.scale * plain(images) + torch.randn(len(images), 10)


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


def test_a_shard_is_probed_by_its_first_images_and_its_model_left_as_it_was() -> None:
    model = Noisy().train()
    data = Given([str(row) for row in range(9)], images=lambda rows: IMAGES[list(rows)])
    assert probe_shard(shard(model, data, [4, 2, 7])) == {"random_outputs": 3}
    assert model.training


def test_of_a_language_the_losses_of_the_first_windows_are_looked_at() -> None:
    words = ["<pad>", "<unk>", "good", "film"]
    text = Documents(name="text", ids=["a"], read=lambda _: words[2:] * 5, vocabulary=Vocabulary(words))
    model = TokenModel(nn.Embedding(4, 4))
    assert probe_shard(shard(model, text, image_size=4)) == {}
    model.backbone.register_forward_hook(lambda _module, _given, logits: logits + torch.randn_like(logits))
    assert probe_shard(shard(model, text, image_size=4)) == {"random_outputs": 2}  # 9 words after the first
