"""Carlini and Wagner's attack on digits: what counts, bounds, targets, and values that are refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.attacks.adversarial.carlini_wagner import carlini_wagner
from assay.attacks.kernel import State
from assay.attacks.threat import sizes

QUICK: dict[str, Any] = {"searches": 3, "iterations": 15, "learning_rate": 0.05}


def distances(state: State) -> Tensor:
    return sizes(state["best"] - state["images"], "L2")


def test_what_counts_is_described(digits: tuple[Tensor, Tensor], network: nn.Module, run: Any) -> None:
    images, labels = digits[0][:40], digits[1][:40]
    state = run(carlini_wagner(**(QUICK | {"learning_rate": 0.02})), network, images, labels)
    found = state["objective"].isfinite()
    assert 0 < int(found.sum()) < 40
    assert torch.equal(found, state["rank"] > 0)
    assert not state["broken"].any()
    logits = network(state["best"])
    assert torch.equal(state["prediction"], logits.argmax(1))
    torch.testing.assert_close(
        state["loss"].float(), nn.functional.cross_entropy(logits, labels, reduction="none")
    )
    # Without an adversarial it is the image, up to the rounding of arctanh.
    torch.testing.assert_close(state["best"][~found], images[~found], rtol=0, atol=1e-6)


def test_epsilon_counts_what_is_near_and_stops_there(
    digits: tuple[Tensor, Tensor], network: nn.Module, run: Any
) -> None:
    images, labels = digits[0][:40], digits[1][:40]
    free = run(carlini_wagner(**QUICK), network, images, labels)
    epsilon = float(distances(free)[free["rank"] > 0].median())
    near = (free["rank"] > 0) & (distances(free) <= epsilon)
    assert 0 < int(near.sum()) < 40
    bounded = run(carlini_wagner(epsilon=epsilon, **QUICK), network, images, labels)
    assert torch.equal(bounded["broken"], near)
    assert torch.equal(bounded["rank"] > 0, near)
    assert (distances(bounded) <= epsilon).all()
    assert (bounded["forward"][near] < free["forward"][near]).any()
    assert torch.equal(bounded["forward"][~near], free["forward"][~near])
    complete = run(carlini_wagner(epsilon=epsilon, **QUICK), network, images, labels, final_iterate=True)
    assert not complete["broken"].any()
    assert torch.equal(complete["best"][near], free["best"][near])
    assert torch.equal(complete["rank"] > 0, near)


def test_a_target_is_reached(digits: tuple[Tensor, Tensor], network: nn.Module, run: Any) -> None:
    images, labels = digits[0][:30], digits[1][:30]
    params = QUICK | {"iterations": 40, "searches": 4}
    state = run(carlini_wagner(targeted=True, target_class=3, **params), network, images, labels)
    assert torch.equal(state["prediction"], torch.where(labels == 3, 4, 3))
    untargeted = run(carlini_wagner(**params), network, images, labels)
    assert distances(untargeted).mean() < 0.8 * distances(state).mean()


def test_classes_that_are_switched_off_do_not_matter(
    digits: tuple[Tensor, Tensor], network: nn.Module, run: Any
) -> None:
    images, labels = digits[0][:20], digits[1][:20]

    class Wider(nn.Module):
        """Two more classes, switched off."""

        def forward(self, points: Tensor) -> Tensor:
            return nn.functional.pad(network(points), (0, 2), value=-torch.inf)

    plain = run(carlini_wagner(**QUICK), network, images, labels)
    wider = run(carlini_wagner(**QUICK), Wider(), images, labels)
    assert (plain["rank"] > 0).any()
    assert torch.equal(plain["best"], wider["best"])


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"searches": 0}, "searches"),
        ({"iterations": 0}, "iterations"),
        ({"confidence": -0.1}, "confidence"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"epsilon": float("nan")}, "epsilon"),
        ({"search": "binary"}, "released, original"),
        ({"norm": "Linf"}, "norm"),
        ({"target": "any"}, "target is 'any'"),
        ({"backend": "cleverhans", "search": "original"}, "native"),
        ({"backend": "cleverhans", "shared_constant": True}, "native"),
        ({"backend": "cleverhans", "abort_early": True}, "native"),
        ({"shared_constant": True, "abort_early": True}, "shared_constant"),
    ],
)
def test_bad_parameters_are_refused(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        carlini_wagner(**params)
