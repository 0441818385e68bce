from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.models.layers.layers import Classifier
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


def counts(found: Any) -> dict[str, int]:
    return {code: count for code, count in found.items() if not code.endswith("_change")}


def test_a_plain_model_raises_nothing() -> None:
    assert probe(plain, IMAGES) == {}
    assert probe(plain, IMAGES[:1]) == {}


def test_random_outputs_are_found_and_not_blamed_on_the_batch() -> None:
    found = probe(lambda images: plain(images) + 0.01 * torch.randn(len(images), 10), IMAGES)
    assert counts(found) == {"random_outputs": 9}


def test_outputs_that_mix_the_batch_are_found() -> None:
    # Half of each mean is of other images; the one of an uneven group has more of itself.
    found = probe(lambda images: plain(images) - plain(images).mean(0), IMAGES)
    assert counts(found) == {"batch_dependent": 9}


def test_logits_for_each_pixel_count_once_for_an_image() -> None:
    assert probe(lambda images: images.expand(-1, 3, -1, -1), IMAGES) == {}
    found = probe(lambda images: images + 0.01 * torch.randn_like(images), IMAGES)
    assert counts(found) == {"random_outputs": 9}


def test_rounding_raises_nothing() -> None:
    assert probe(lambda images: plain(images) * (1 + 1e-6 * len(images)), IMAGES) == {}


def test_infinite_logits_are_no_change() -> None:
    def masked(images: Tensor) -> Tensor:
        logits = plain(images).clone()
        logits[:, 3] = -torch.inf
        return logits

    assert probe(masked, IMAGES) == {}
    found = probe(lambda images: masked(images) + torch.randn(len(images), 10), IMAGES)
    assert counts(found) == {"random_outputs": 9}


def test_a_shard_is_probed_by_its_first_images_and_its_model_left_as_it_was() -> None:
    model = Noisy().train()
    data = Given([str(row) for row in range(9)], images=lambda rows: IMAGES[list(rows)])
    assert counts(probe_shard(shard(model, data, [4, 2, 7]))) == {"random_outputs": 3}
    assert model.training


def test_of_a_language_the_losses_of_the_first_windows_are_looked_at() -> None:
    words = ["<pad>", "<unk>", "good", "film"]
    text = Documents(name="text", ids=["a"], read=lambda _: words[2:] * 5, vocabulary=Vocabulary(words))
    model = TokenModel(nn.Embedding(4, 4))
    assert probe_shard(shard(model, text, image_size=4)) == {}
    model.backbone.register_forward_hook(lambda _module, _given, logits: logits + torch.randn_like(logits))
    assert counts(probe_shard(shard(model, text, image_size=4))) == {
        "random_outputs": 2
    }  # 9 words after the first


class Shift(nn.Module):
    """Adds to every logit a number that depends on the batch, or on chance, in the given arithmetic."""

    def __init__(self, of: Callable[[Tensor], Tensor], dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.of, self.dtype = of, dtype
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, images: Tensor) -> Tensor:
        logits = self.scale * plain(images)
        inside = logits.to(self.dtype or logits.dtype)
        return (inside + self.of(inside)).to(logits.dtype)


def found_in(model: nn.Module) -> dict[str, float]:
    data = Given([str(row) for row in range(9)], images=lambda rows: IMAGES[list(rows)])
    return dict(probe_shard(shard(model.eval(), data)))


@pytest.mark.parametrize("size", [1e-1, 1e-3, 1e-5])
def test_effects_of_the_batch_are_found_down_to_the_rounding_of_float32(size: float) -> None:
    found = found_in(Shift(lambda logits: size * logits.amax(0)))
    assert found["batch_dependent"] >= 5
    assert 0.01 * size < found["batch_dependent_change"] < 2 * size


@pytest.mark.parametrize("size", [1e-2, 1e-5])
def test_random_numbers_are_found_down_to_the_rounding_of_float32(size: float) -> None:
    found = found_in(Shift(lambda logits: size * torch.randn_like(logits)))
    assert found["random_outputs"] == 9
    assert 0.1 * size < found["random_outputs_change"] < 10 * size


def rounded_by_size(logits: Tensor) -> Tensor:
    """An error of rounding that changes with the size of the batch, in units of the arithmetic."""
    return 30 * torch.finfo(logits.dtype).eps * len(logits) * logits


@pytest.mark.parametrize("dtype", [None, torch.float32])
def test_rounding_raises_nothing_even_where_a_model_computes_in_float32_inside(
    dtype: torch.dtype | None,
) -> None:
    assert found_in(Shift(rounded_by_size, dtype)) == {}


class Stiff(Shift):
    """Cannot be run in float64."""

    def forward(self, images: Tensor) -> Tensor:
        if images.dtype == torch.float64:
            raise RuntimeError("expected scalar type Float but found Double")
        return super().forward(images)


def test_a_model_that_has_no_float64_is_judged_by_float32_alone() -> None:
    assert found_in(Stiff(lambda logits: 1e-4 * logits.amax(0))) == {}
    assert found_in(Stiff(lambda logits: logits.amax(0)))["batch_dependent"] == 9


def test_probing_leaves_the_weights_and_their_type_as_they_were() -> None:
    model = Shift(lambda logits: 1e-4 * logits.amax(0))
    found_in(model)
    assert model.scale.dtype == torch.float32
    assert torch.equal(model.scale, torch.ones(1))


class Constant(nn.Module):
    """Has no parameters, as a program whose weights are constants."""

    def forward(self, images: Tensor) -> Tensor:
        return plain(images)


def test_a_model_may_have_no_parameters() -> None:
    data = Given(
        "abc", images=lambda indices: IMAGES[list(indices)], labels=torch.zeros(9, dtype=torch.int64)
    )
    for model in (Constant(), Classifier(Constant(), [0.5], [0.5])):
        assert probe_shard(shard(model, data, [0, 1, 2])) == {}
    double = Classifier(Constant(), [0.5], [0.5]).double()
    assert probe_shard(shard(double, data, [0, 1, 2])) == {}
