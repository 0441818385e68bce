"""The gradient of a model beside the changes that small noise makes, on its first examples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.models.layers.layers import Classifier
from assay.models.layers.series_model import SeriesModel
from assay.workers.evaluation.engine.attack import gradient_probe
from assay.workers.evaluation.engine.attack.gradient_probe import (
    DIRECTIONS,
    EXAMPLES,
    TOGETHER,
    gradient_evidence,
)
from assay.workers.evaluation.engine.probe import first_look
from assay.workers.evaluation.engine.shard import Shard
from assay.workers.weights.programs import as_classifier, read_program
from tests.support.programs import Net, export
from tests.support.shards import Given, shard

IMAGES = torch.rand(20, 1, 4, 4, generator=torch.Generator().manual_seed(0))


class Function(nn.Module):
    def __init__(self, answer: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.answer = answer
        self.calls: list[int] = []

    def forward(self, images: Tensor) -> Tensor:
        self.calls.append(len(images))
        return self.answer(images)


def linear(images: Tensor) -> Tensor:
    return images.flatten(1)[:, :10]


def stepped(images: Tensor) -> Tensor:
    return (linear(images) * 16).round() / 16


def given(answer: Callable[[Tensor], Tensor], images: Tensor = IMAGES, **more: Any) -> Shard:
    data = Given([f"example-{row}" for row in range(len(images))], images=lambda rows: images[list(rows)])
    return shard(Classifier(Function(answer), [0.0], [1.0]).eval(), data, **more)


def probed(answer: Callable[[Tensor], Tensor], images: Tensor = IMAGES, **more: Any) -> Any:
    repeats = more.pop("repeats", True)
    return gradient_evidence(given(answer, images, **more), images, repeats=repeats)


@pytest.mark.parametrize(
    ("answer", "zero", "tiny"),
    [
        (linear, 0, 0),
        (stepped, EXAMPLES, EXAMPLES),
        (lambda x: stepped(x) + 1e-3 * linear(x), 0, EXAMPLES),
        (lambda x: stepped(x) + linear(x), 0, 0),
        (lambda x: linear(x).detach(), EXAMPLES, EXAMPLES),
        (lambda x: 0 * linear(x), EXAMPLES, 0),  # nothing changes at all
        (lambda x: linear(x).unflatten(1, (5, 2))[..., None], 0, 0),  # logits per pixel
        (lambda x: stepped(x).unflatten(1, (5, 2))[..., None], EXAMPLES, EXAMPLES),
        (lambda x: linear(x) * torch.nan, 0, 0),
    ],
)
def test_zero_and_tiny_gradients_are_counted(
    answer: Callable[[Tensor], Tensor], zero: int, tiny: int
) -> None:
    assert probed(answer) == {"examples": EXAMPLES, "zero": zero, "tiny": tiny}


def test_saturated_outputs_have_sound_margins() -> None:
    assert probed(lambda x: 1e4 * linear(x)) == {
        "examples": EXAMPLES,
        "zero": 0,
        "tiny": 0,
        "saturated": EXAMPLES,
    }


def test_rounding_is_no_change() -> None:
    # Changes of 1e-6 of the largest logit, and a gradient far below them.
    assert probed(lambda x: 100 + 1e-3 * stepped(x) + 1e-9 * linear(x))["tiny"] == 0


def test_of_a_model_that_draws_zeros_are_counted_alone() -> None:
    assert probed(stepped, repeats=False) == {"examples": EXAMPLES, "zero": EXAMPLES, "tiny": 0}


def test_tokens_have_no_gradients() -> None:
    assert gradient_evidence(given(linear), torch.zeros(4, 3, dtype=torch.int64), repeats=True) is None


def test_the_passes_are_few_and_no_larger_than_a_batch() -> None:
    subject = given(linear, batch_size=6)
    gradient_evidence(subject, IMAGES, repeats=True)
    calls = subject.classifier.backbone.calls
    assert calls == [TOGETHER] * (EXAMPLES // TOGETHER) * (2 + 2 * DIRECTIONS)
    few = given(linear, batch_size=3)
    gradient_evidence(few, IMAGES, repeats=True)
    assert max(few.classifier.backbone.calls) == 3


def test_it_repeats_and_does_not_depend_on_the_batch() -> None:
    def halting(x: Tensor) -> Tensor:
        return stepped(x) + 0.2 * linear(x)

    found = [probed(halting, batch_size=size) for size in (1, 5, 16, 16)]
    assert found == [found[0]] * 4
    assert 0 < found[0]["tiny"] < EXAMPLES, "a border, where any other draw would show"


def test_less_memory_means_smaller_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    def tight(x: Tensor) -> Tensor:
        if len(x) > 3:
            raise torch.OutOfMemoryError
        return stepped(x)

    assert probed(tight, batch_size=16) == {"examples": EXAMPLES, "zero": EXAMPLES, "tiny": EXAMPLES}

    def never(x: Tensor) -> Tensor:
        raise torch.OutOfMemoryError

    assert probed(never) is None


def test_pixels_stay_in_the_range_of_the_examples() -> None:
    seen: list[Tensor] = []

    def watching(x: Tensor) -> Tensor:
        seen.append(x.detach())
        return linear(x)

    probed(watching)
    everything = torch.cat(seen)
    assert everything.min() == IMAGES[:EXAMPLES].min()
    assert everything.max() == IMAGES[:EXAMPLES].max()


class OfSeries(nn.Module):
    series_length = 6

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Tensor] = []

    def forward(self, rows: Tensor) -> Tensor:
        self.seen.append(rows.detach())
        return rows[:, :2].mean(2)


def test_padded_steps_of_series_do_not_move() -> None:
    series = torch.randn(4, 3, 6, generator=torch.Generator().manual_seed(1))
    series[:, 2] = 1.0
    series[1:, :, 4:] = 0.0
    backbone = OfSeries()
    model = SeriesModel(backbone, [0.0, 0.0], [1.0, 1.0]).eval()
    data = Given(list("abcd"), images=lambda rows: series[list(rows)])
    assert gradient_evidence(shard(model, data), series, repeats=True) == {
        "examples": 4,
        "zero": 0,
        "tiny": 0,
    }
    moved = torch.stack([rows - series for rows in backbone.seen])
    assert moved[:, :, 2].eq(0).all()
    assert moved[:, 1:, :, 4:].eq(0).all()
    assert moved[:, :, :2, :4].ne(0).any()


def test_only_attacked_examples_are_looked_at_so_closely() -> None:
    subject = given(stepped)
    assert "first_gradients" not in first_look(subject, attacked=False)
    assert first_look(subject, attacked=True)["first_gradients"] == {
        "examples": EXAMPLES,
        "zero": EXAMPLES,
        "tiny": EXAMPLES,
    }


def test_what_a_random_model_draws_afterwards_is_what_it_drew_without_the_look() -> None:
    def drawing(x: Tensor) -> Tensor:
        return stepped(x) + 0.01 * torch.randn(10)

    after = []
    for attacked in (False, True):
        with torch.random.fork_rng():
            torch.manual_seed(3)
            found = first_look(given(drawing), attacked=attacked)
            after.append(torch.rand(4))
    assert torch.equal(*after)
    assert found["random_outputs"] == EXAMPLES
    assert found["first_gradients"] == {"examples": EXAMPLES, "zero": EXAMPLES, "tiny": 0}


def test_noise_is_keyed_by_seed_and_example() -> None:
    ids, spread = given(linear).ids, torch.ones(1, 1, 1, 1)
    noise = [gradient_probe._noise(given(linear, seed=seed), ids, IMAGES, spread) for seed in (0, 0, 1)]
    assert torch.equal(noise[0], noise[1])
    assert not torch.equal(noise[0], noise[2])
    # Of the same example among others: the same noise.
    alone = gradient_probe._noise(given(linear), ids[3:4], IMAGES[3:4], spread)
    assert torch.equal(alone[0], noise[0][3])


@pytest.mark.costly
@pytest.mark.parametrize(
    ("answer", "zero"),
    [
        (lambda net, x: net.plain(x), 0),
        (lambda net, x: net.plain((x * 8).round() / 8), 8),
        (lambda net, x: net.plain(x.detach()), 8),
    ],
    ids=["plain", "rounded", "cut"],
)
def test_programs_are_asked_as_other_models_are(tmp_path: Path, answer: Any, zero: int) -> None:
    program = as_classifier(read_program(export(Net(answer), tmp_path / "net.pt2")))
    images = torch.rand(8, 3, 8, 8, generator=torch.Generator().manual_seed(2))
    data = Given([str(row) for row in range(8)], images=lambda rows: images[list(rows)])
    found = first_look(shard(program, data), attacked=True)["first_gradients"]
    assert found == {"examples": 8, "zero": zero, "tiny": zero}


@pytest.mark.parametrize(
    ("margin", "dtype", "saturated"),
    [(10.0, torch.float32, 0), (25.0, torch.float32, EXAMPLES), (25.0, torch.float64, 0)],
)
def test_answers_whose_softmax_rounds_to_one_are_counted(
    margin: float, dtype: torch.dtype, saturated: int
) -> None:
    """Exact at 1 - exp(-25): float32 has no number between it and 1."""

    def certain(images: Tensor) -> Tensor:
        return torch.stack([images.flatten(1).mean(1) + margin, -images.flatten(1).mean(1)], dim=1).to(dtype)

    assert probed(certain).get("saturated", 0) == saturated
    pixels = probed(lambda images: certain(images)[..., None, None].expand(-1, -1, 4, 4))
    assert pixels.get("saturated", 0) == saturated
