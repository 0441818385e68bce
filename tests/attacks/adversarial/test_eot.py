"""Gradients averaged over several passes of a model that answers differently each time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.attacks.adversarial.carlini_wagner import carlini_wagner
from assay.attacks.adversarial.fgsm import fgsm
from assay.attacks.adversarial.pgd import pgd
from assay.attacks.adversarial.sparse_l1_descent import sparse_l1_descent
from assay.attacks.kernel import Attack, Examples, Setting, State
from assay.attacks.randomness import Randomness
from assay.service.contract.errors import InvalidSpec
from assay.service.submission.validate import validate
from assay.workers import catalog

ATTACKS: dict[str, Callable[..., Attack]] = {
    "pgd": pgd,
    "fgsm": fgsm,
    "sparse_l1_descent": sparse_l1_descent,
    "carlini_wagner": carlini_wagner,
}
QUICK: dict[str, dict[str, Any]] = {
    "pgd": {"epsilon": 0.02, "steps": 4, "restarts": 2},
    "fgsm": {"epsilon": 0.02},
    "sparse_l1_descent": {"epsilon": 0.1, "steps": 4, "restarts": 2, "random_start": True},
    "carlini_wagner": {"searches": 2, "iterations": 5, "learning_rate": 0.001},
}


class Alternating(nn.Module):
    """Two classes of one pixel x: the logits differ by 2 + slope x, with the next slope at each gradient."""

    def __init__(self, *slopes: float) -> None:
        super().__init__()
        self.slopes = slopes
        self.differentiated = 0

    def forward(self, points: Tensor) -> Tensor:
        slope = self.slopes[self.differentiated % len(self.slopes)]
        self.differentiated += points.requires_grad
        margin = 2 + slope * points.flatten(1)
        return torch.cat([margin / 2, -margin / 2], 1)


def begun(attack: Attack, model: nn.Module) -> tuple[Setting, State]:
    """Setting and state of one grey pixel of class 0 before the first step."""
    image, label = torch.full((1, 1, 1, 1), 0.5, dtype=torch.float64), torch.tensor([0])
    setting = Setting(["grey"], Randomness(0, attack.name))
    return setting, attack.start(setting, Examples(torch.tensor([0]), image, label, label, model(image)))


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["pgd", "fgsm", "sparse_l1_descent"])
@pytest.mark.parametrize(("eot", "direction"), [(1, -1), (2, 1), (3, 1)])
def test_a_step_follows_the_mean_of_the_gradients(name: str, eot: int, direction: int) -> None:
    """The margin falls with x in all passes but the first, and by more than it rises in that."""
    model = Alternating(1.0, -3.0, -0.5)
    params = QUICK[name] | ({"restarts": 1, "random_start": False} if name != "fgsm" else {})
    attack = ATTACKS[name](**params, eot=eot)
    setting, state = begun(attack, model)
    with torch.no_grad():
        attack.step(setting, model, state)
    assert model.differentiated == eot
    assert torch.sign(state["adversarial"] - 0.5).item() == direction


def test_carlini_and_wagners_gradient_is_that_of_the_mean_hinge() -> None:
    """The margin is 2 + 3 x, 2 - 9 x, 2 + 6 x: the second pass is a success, so that its slope is 0."""
    model = Alternating(3.0, -9.0, 6.0)
    attack: Any = carlini_wagner(searches=1, iterations=9, initial_constant=7.0, eot=3)
    setting, state = begun(attack, model)
    with torch.no_grad():
        attack.step(setting, model, state)
    # For x = (tanh(m + a) + 1) / 2 at x = 0.5, and Adam's first moment.
    expected = 0.1 * 7 * (3 + 0 + 6) / 3 / 2
    assert state["moment"].item() == pytest.approx(expected, rel=1e-6)
    # The last pass answers: it is no success.
    assert not state["success"].any()


@pytest.mark.parametrize("name", ATTACKS)
def test_a_model_that_is_not_random_is_attacked_in_the_same_way_with_as_many_passes_as_declared(
    digits: tuple[Tensor, Tensor], network: nn.Module, run: Any, name: str
) -> None:
    images, labels, model = digits[0][:20].double(), digits[1][:20], network.double()
    params = QUICK[name] | {"judgement": "single_draw"}
    params |= {"cycle_detection": False} if name == "pgd" else {}
    try:
        once, thrice = (run(ATTACKS[name](**params, eot=eot), model, images, labels) for eot in (1, 3))
    finally:
        network.float()
    torch.testing.assert_close(thrice["best"], once["best"], rtol=0, atol=1e-9)
    assert torch.equal(thrice["prediction"], once["prediction"])
    assert torch.equal(thrice["backward"], 3 * once["backward"])
    assert torch.equal(thrice["forward"], once["forward"] + 2 * once["backward"])
    for eot, state in ((1, once), (3, thrice)):
        # That of the unattacked image is not the attack's.
        forward, backward = catalog.passes(name, catalog_params(name, params | {"eot": eot}))
        assert int(state["forward"].max()) + 1 <= forward
        assert int(state["backward"].max()) <= backward
        if name != "carlini_wagner":  # which declares what the library takes
            assert int(state["forward"].max()) + 1 == forward
            assert int(state["backward"].max()) == backward


def catalog_params(name: str, params: dict[str, Any]) -> dict[str, Any]:
    schema = catalog.load().find_evaluation(name).parameters["properties"]
    return {key: value["default"] for key, value in schema.items() if "default" in value} | params


def test_cycles_of_a_random_model_are_none() -> None:
    attack: Any = pgd(eot=2)
    assert not attack.cycle_detection
    attack = pgd()
    assert attack.cycle_detection


@pytest.mark.parametrize("name", ATTACKS)
def test_what_cannot_be_averaged_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"eot.* at least 1"):
        ATTACKS[name](eot=0)
    quick = {"random_start": False} if name == "sparse_l1_descent" else {}
    with pytest.raises(ValueError, match=r"eot is 2, above 1 it needs backend 'native'"):
        ATTACKS[name](eot=2, backend="cleverhans", **quick)


@pytest.mark.parametrize("name", ATTACKS)
def test_the_service_refuses_it_too(name: str) -> None:
    def check(**params: Any) -> None:
        spec = {"kind": "evaluate", "model": {"name": "symvit", "params": {"image_size": 16}}}
        validate(
            catalog.load(),
            spec | {"data": {"name": "digits"}, "evaluations": [{"name": name, "params": params}]},
        )

    check(eot=2)
    check(backend="cleverhans")
    with pytest.raises(InvalidSpec, match="eot need"):
        check(eot=2, backend="cleverhans")
