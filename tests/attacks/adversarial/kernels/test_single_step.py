"""FGSM's passes: its gradient comes from the clean pass, its only judgement is the engine's."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.attacks.adversarial.fgsm import fgsm
from assay.attacks.adversarial.kernels.single_step import OneStep, SharedStep
from assay.attacks.judgement import judge
from assay.attacks.kernel import Examples, Setting, State, WithFirstGradient
from assay.attacks.randomness import Randomness
from assay.models.layers.layers import Classifier
from assay.workers.evaluation.engine.ledger import ExampleOutcomes
from assay.workers.evaluation.engine.protocols import attack_paper, attack_pixel
from tests.support import networks

N, EPSILON = 300, 0.05
IDS = [f"digit-{number:04d}" for number in range(N)]
Run = Callable[..., ExampleOutcomes]


class Apart:
    """The same attack, with a separate pass for its gradient."""

    def __init__(self, attack: Any) -> None:
        self.attack = attack

    def __getattr__(self, name: str) -> Any:
        if name == "first_objective":
            raise AttributeError(name)
        return getattr(self.attack, name)


@dataclass(frozen=True)
class TooFar(SharedStep):
    """Leaves its ball in every second example."""

    def step(self, setting: Setting, model: Any, state: State) -> None:
        super().step(setting, model, state)
        odd = (state["row"] % 2 == 1)[:, None, None, None]
        state["best"] = torch.where(
            odd, state["images"] + 2 * (state["best"] - state["images"]), state["best"]
        )


class Rows(nn.Module):
    """Counts images."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.forwards = 0

    def forward(self, images: Tensor) -> Tensor:
        self.forwards += len(images)
        logits: Tensor = self.model(images)
        return logits


@pytest.fixture(scope="module")
def model() -> Classifier:
    """Knows the digits from the 500th on."""
    return Classifier(networks.network("gelu"), [networks.MEAN], [networks.STD]).train()


@pytest.fixture
def run(digits: tuple[Tensor, Tensor], model: Classifier) -> Run:
    pixels, labels = digits

    def go(
        attack: Any, network: nn.Module | None = None, *, evaluation: Any = attack_pixel, **more: Any
    ) -> Any:
        arguments: dict[str, Any] = {"batch_size": 32, "randomness": Randomness(0, attack.name)}
        subject = copy.deepcopy(model).double() if network is None else network
        arguments |= {"keep_adversarial": True, "dtype": "float64"} | more
        return evaluation(attack, subject, lambda rows: pixels[list(rows)], labels[:N], IDS, **arguments)

    return go


@pytest.mark.sampled
@pytest.mark.parametrize("evaluation", [attack_pixel, attack_paper])
@pytest.mark.parametrize("norm", ["Linf", "L2"])
@pytest.mark.parametrize("targeted", [False, True])
def test_one_pass_for_both_changes_nothing_but_the_count(
    run: Run, evaluation: Any, norm: Any, targeted: bool
) -> None:
    epsilon = EPSILON if norm == "Linf" else 0.5
    attack = fgsm(epsilon=epsilon, norm=norm, targeted=targeted)
    together, apart = run(attack, evaluation=evaluation), run(Apart(attack), evaluation=evaluation)
    for column in ("prediction", "correct", "correct5", "clean_correct"):
        assert torch.equal(getattr(together, column), getattr(apart, column)), column
    for column in ("loss", "adversarial", "linf", "l2"):
        torch.testing.assert_close(getattr(together, column), getattr(apart, column), rtol=0, atol=1e-9)
    assert 0 < int((together.clean_correct & ~together.correct).sum()) < N - 50, (
        "otherwise this tests nothing"
    )
    attacked = together.clean_correct if evaluation is attack_pixel else torch.ones(N, dtype=torch.bool)
    assert torch.equal((apart.forward - together.forward).bool(), attacked)
    assert (together.backward == 1).all()


@pytest.mark.parametrize("evaluation", [attack_pixel, attack_paper])
def test_averaged_gradients_share_no_pass_with_the_clean_answer(run: Run, evaluation: Any) -> None:
    attack = fgsm(epsilon=EPSILON, eot=3, judgement="single_draw")
    assert not isinstance(attack, WithFirstGradient)
    averaged, once = run(attack, evaluation=evaluation), run(fgsm(epsilon=EPSILON), evaluation=evaluation)
    assert torch.equal(averaged.prediction, once.prediction)
    torch.testing.assert_close(averaged.adversarial, once.adversarial, rtol=0, atol=1e-9)
    attacked = once.clean_correct if evaluation is attack_pixel else torch.ones(N, dtype=torch.bool)
    assert torch.equal(averaged.forward - once.forward, 3 * attacked.long())
    assert torch.equal(averaged.backward, 3 * attacked.long())


def test_it_asks_the_model_twice(run: Run, model: Classifier) -> None:
    network = Rows(copy.deepcopy(model).double())
    outcomes = run(fgsm(epsilon=EPSILON), network, keep_adversarial=False)
    right = int(outcomes.clean_correct.sum())
    assert network.forwards == N + right
    assert int(outcomes.forward.sum()) == network.forwards
    assert outcomes.queries is not None
    assert torch.equal(outcomes.queries, outcomes.clean_correct.long())
    rounded = run(fgsm(epsilon=EPSILON))
    assert int(rounded.forward.sum()) == N + right + int((rounded.clean_correct & ~rounded.correct).sum())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_outcome_is_what_the_model_says_in_float32(
    run: Run, model: Classifier, digits: tuple[Tensor, Tensor], dtype: str
) -> None:
    outcomes = run(fgsm(epsilon=EPSILON), copy.deepcopy(model), dtype=dtype)
    assert outcomes.adversarial is not None
    with torch.no_grad():
        verdict = judge(model(outcomes.adversarial), digits[1][:N])
    attacked = outcomes.clean_correct
    assert torch.equal(outcomes.prediction[attacked], verdict.prediction[attacked])
    torch.testing.assert_close(outcomes.loss[attacked], verdict.loss[attacked], rtol=1e-4, atol=1e-5)
    assert 0 < int((attacked & ~outcomes.correct).sum()) < N - 50


def test_an_iterate_outside_its_ball_does_not_count(run: Run) -> None:
    attack = fgsm(epsilon=EPSILON)
    assert isinstance(attack, OneStep)
    honest, outside = run(attack), run(TooFar(attack.name, attack.ball, attack.goal))
    odd = torch.arange(N) % 2 == 1
    broken = honest.clean_correct & ~honest.correct
    assert torch.equal(outside.correct[~odd], honest.correct[~odd])
    assert not (broken & odd & ~outside.correct).any()
    assert outside.noted["out_of_ball"] >= int((broken & odd).sum()) > 0
    assert "unverified" not in outside.noted


def test_slots_that_were_given_their_gradient_are_a_step_further(
    model: Classifier, digits: tuple[Tensor, Tensor]
) -> None:
    images, labels = digits[0][:4], digits[1][:4]
    attack, setting = fgsm(epsilon=EPSILON), Setting(IDS, Randomness(0, "fgsm"))
    assert isinstance(attack, OneStep)
    examples = Examples(torch.arange(4), images, labels, labels, model(images).detach())
    state = attack.start(setting, examples._replace(gradient=torch.ones_like(images)))
    assert state["iteration"].tolist() == [1] * 4
    assert state["backward"].tolist() == [1] * 4
    torch.testing.assert_close(state["adversarial"], (images + EPSILON).clamp(0, 1))
