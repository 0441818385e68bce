"""Patches: pixels outside are the image's, places by the gradient, a plain loop, batches, bad values."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from assay.attacks.adversarial.adversarial_patch import adversarial_patch
from assay.attacks.randomness import Randomness
from assay.models.layers.layers import Classifier
from assay.workers.evaluation.engine.ledger import ExampleOutcomes
from assay.workers.evaluation.engine.protocols import attack_pixel
from tests.support import networks

N = 40
IDS = [f"digit-{number:04d}" for number in range(N)]


@pytest.fixture(scope="module")
def network() -> nn.Module:
    return Classifier(networks.network("gelu"), [networks.MEAN], [networks.STD]).eval().double()


def run(attack: Any, model: nn.Module, **more: Any) -> ExampleOutcomes:
    images, labels = networks.digits()
    plain: dict[str, Any] = {"batch_size": 16, "dtype": "float64", "keep_adversarial": True}
    arguments = plain | {"randomness": Randomness(0, attack.name)} | more
    return attack_pixel(*(attack, model, lambda rows: images[list(rows)], labels[:N], IDS), **arguments)


def squares(size: int, stride: int) -> list[tuple[int, int]]:
    return [(top, left) for top in range(0, 9 - size, stride) for left in range(0, 9 - size, stride)]


def by_hand(
    model: nn.Module, image: Tensor, label: Tensor, size: int, stride: int, restarts: int, steps: int
) -> bool:
    """Whether the example is right under a patch at the places with the largest gradients."""
    leaf = image.clone().requires_grad_(True)
    logits = model(leaf[None])
    if int(logits.argmax()) != int(label):
        return False
    (gradient,) = torch.autograd.grad(cross_entropy(logits, label[None]), leaf)
    places = squares(size, stride)
    strength = [float(gradient[:, t : t + size, left : left + size].abs().sum()) for t, left in places]
    for place in sorted(range(len(places)), key=lambda number: -strength[number])[:restarts]:
        top, left = places[place]
        mask = torch.zeros_like(image)
        mask[:, top : top + size, left : left + size] = 1
        point = image.clone()
        for step in range(steps + 1):
            leaf = point.clone().requires_grad_(True)
            logits = model(leaf[None])
            if int(logits.argmax()) != int(label):
                return False
            if step == steps:
                break
            (slope,) = torch.autograd.grad(cross_entropy(logits, label[None]), leaf)
            point = torch.where(mask > 0, (point + 0.1 * slope.sign()).clamp(0, 1), image)
    return True


@pytest.mark.parametrize(("aligned", "stride"), [(True, 2), (False, 1)])
def test_it_is_a_plain_loop_over_the_places_with_the_largest_gradients(
    network: nn.Module, aligned: bool, stride: int
) -> None:
    images, labels = networks.digits()
    attack = adversarial_patch(size=2, aligned=aligned, steps=10, step_size=0.1, restarts=3)
    found = run(attack, network)
    own = images[:N].double()
    expected = [by_hand(network, own[row], labels[row], 2, stride, 3, 10) for row in range(N)]
    assert found.correct.tolist() == expected
    assert 0 < sum(expected) < int(found.clean_correct.sum()) - 3


@pytest.mark.parametrize("location", ["gradient", "all", "centre"])
def test_one_square_changes_and_nothing_else(network: nn.Module, location: Any) -> None:
    attack = adversarial_patch(size=3, location=location, steps=10, step_size=0.2, restarts=2)
    found = run(attack, network)
    assert found.adversarial is not None
    changed = (found.adversarial != networks.digits()[0][:N].double())[:, 0]
    known = squares(3, 3) if location != "centre" else [(2, 2)]
    for row in (found.clean_correct & ~found.correct).nonzero().flatten().tolist():
        rows, columns = changed[row].nonzero(as_tuple=True)
        fits = [
            (top, left)
            for top, left in known
            if top <= int(rows.min()) and int(rows.max()) < top + 3
            if left <= int(columns.min()) and int(columns.max()) < left + 3
        ]
        assert fits
    assert int(found.correct.sum()) < int(found.clean_correct.sum())


def test_all_places_break_what_any_place_breaks(network: nn.Module) -> None:
    few, every = (
        run(adversarial_patch(size=2, location=location, steps=8, step_size=0.2), network)
        for location in ("gradient", "all")
    )
    assert (every.correct <= few.correct).all()
    assert int(every.correct.sum()) < int(few.correct.sum())


@pytest.mark.parametrize("random_start", [False, True])
def test_an_example_depends_on_no_other(network: nn.Module, random_start: bool) -> None:
    attack = adversarial_patch(size=2, steps=6, step_size=0.2, restarts=3, random_start=random_start)
    whole, parts = (run(attack, network, batch_size=size) for size in (N, 7))
    assert torch.equal(whole.correct, parts.correct)
    torch.testing.assert_close(whole.adversarial, parts.adversarial, rtol=0, atol=1e-12)
    assert torch.equal(whole.forward, parts.forward)


def test_starts_of_the_middle_differ(network: nn.Module) -> None:
    one, several = (
        run(adversarial_patch(size=4, location="centre", steps=3, restarts=count), network)
        for count in (1, 5)
    )
    assert int(several.correct.sum()) <= int(one.correct.sum())
    held = one.correct & several.correct
    assert (several.backward[held] > one.backward[held]).all()


def test_targets(network: nn.Module) -> None:
    found = run(adversarial_patch(size=4, steps=20, step_size=0.2, targeted=True, target="next"), network)
    assert found.hit is not None
    assert int(found.hit.sum()) > 0
    hit = found.prediction == (found.labels + 1) % 10
    assert torch.equal(found.hit, found.clean_correct & ~found.correct & hit)


def test_bad_values(network: nn.Module) -> None:
    with pytest.raises(ValueError, match="location is 'corner', allowed are gradient, all, centre"):
        adversarial_patch(location="corner")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must be at least 1"):
        adversarial_patch(size=0)
    with pytest.raises(ValueError, match="size is 9, the images are of 8 x 8 pixels"):
        run(adversarial_patch(size=9), network)
