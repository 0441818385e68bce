"""Targeted attacks go on to their target; any wrong answer on the way breaks the example."""

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
from assay.attacks.adversarial.spsa import spsa
from assay.attacks.adversarial.square import square
from assay.attacks.kernel import Attack, Examples, Setting, begin, record
from assay.attacks.randomness import Randomness
from assay.models.layers.layers import Classifier
from assay.workers.evaluation.engine.ledger import ExampleOutcomes
from assay.workers.evaluation.engine.protocols import attack_paper, attack_pixel

N = 100
IDS = [f"digit-{number:04d}" for number in range(N)]
EPSILON = 0.15
ATTACKS: dict[str, Callable[..., Attack]] = {
    "pgd": lambda **more: pgd(epsilon=EPSILON, steps=20, restarts=2, **more),
    "fgsm": lambda **more: fgsm(epsilon=EPSILON, **more),
    "sparse_l1_descent": lambda **more: sparse_l1_descent(epsilon=6.0, steps=20, **more),
    "square": lambda **more: square(epsilon=EPSILON, queries=60, **more),
    "spsa": lambda **more: spsa(epsilon=EPSILON, steps=10, samples=16, learning_rate=0.05, **more),
    "carlini_wagner": lambda **more: carlini_wagner(searches=3, iterations=50, learning_rate=0.05, **more),
}


@pytest.fixture
def run(digits: tuple[Tensor, Tensor], model: Classifier) -> Any:
    images, labels = digits

    def go(attack: Any, network: nn.Module | None = None, **more: Any) -> ExampleOutcomes:
        evaluation = more.pop("evaluation", attack_pixel)
        arguments: dict[str, Any] = {"batch_size": 16, "randomness": Randomness(0, attack.name), **more}
        subject = model.eval() if network is None else network
        found: ExampleOutcomes = evaluation(
            attack, subject, lambda rows: images[list(rows)], labels[:N], IDS, **arguments
        )
        return found

    return go


def hits(found: ExampleOutcomes) -> Tensor:
    assert found.hit is not None
    return found.hit


@pytest.mark.sampled
@pytest.mark.parametrize("name", ATTACKS)
def test_a_hit_is_a_prediction_of_the_target(name: str, run: Any) -> None:
    found = run(ATTACKS[name](targeted=True, target="next"))
    aims = (found.labels + 1) % 10
    attacked = found.clean_correct
    assert torch.equal(hits(found), attacked & ~found.correct & (found.prediction == aims))
    assert int(hits(found).sum()) > 0
    if name != "carlini_wagner":  # which counts nothing else
        assert int((attacked & ~found.correct & ~hits(found)).sum()) > 0


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["pgd", "sparse_l1_descent", "square", "spsa"])
def test_what_is_broken_on_the_way_stays_broken(name: str, run: Any) -> None:
    """By an attack that ends at its first wrong answer, the same start and steps."""
    attack = ATTACKS[name](targeted=True, target="next")
    found = run(attack)
    # A target is hit by a wrong answer: an example right to the end was right at every iterate.
    again = run(attack, batch_size=3)
    assert torch.equal(again.correct, found.correct)
    assert torch.equal(hits(again), hits(found))
    astray = found.clean_correct & ~found.correct & ~hits(found)
    assert found.forward[hits(found)].double().mean() < found.forward[astray].double().mean()


def test_more_steps_hit_more_and_break_no_fewer(run: Any) -> None:
    few, many = (run(pgd(epsilon=EPSILON, steps=n, step_size=0.02, targeted=True, target="next",
                         random_start=False)) for n in (3, 30))  # fmt: skip
    assert (hits(few) <= hits(many)).all()
    assert (few.correct >= many.correct).all()
    assert int(hits(many).sum()) > int(hits(few).sum())


@pytest.mark.costly
def test_untargeted_attacks_have_no_hits(run: Any) -> None:
    assert run(ATTACKS["pgd"]()).hit is None
    assert "hit" not in run(ATTACKS["pgd"]()).columns()
    assert "hit" in run(ATTACKS["pgd"](targeted=True)).columns()


def test_a_shard_without_an_attacked_example_has_the_column(run: Any) -> None:
    class Zero(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            return torch.cat([torch.full((len(images), 10), 0.0), torch.ones(len(images), 1)], 1)

    assert not hits(run(ATTACKS["pgd"](targeted=True), Zero())).any()


def test_the_paper_protocol_counts_final_iterates(run: Any) -> None:
    """All examples are attacked, and those that were wrong may end in the target as well."""
    found = run(pgd(epsilon=1.0, steps=20, targeted=True, target_class=3), evaluation=attack_paper)
    others = found.labels != 3
    assert torch.equal(hits(found)[others], (found.prediction == 3)[others])


def test_a_hit_that_the_second_judgement_refuses_is_none(run: Any, model: Classifier) -> None:
    """The model predicts the target in batches with gradients only."""

    class Flattering(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            logits: Tensor = model.eval()(images)
            return logits.roll(1, 1) if images.requires_grad else logits

    found = run(pgd(epsilon=0.0, steps=3, targeted=True, target="next"), Flattering())
    assert not hits(found).any()
    assert torch.equal(found.correct, found.clean_correct)


def test_which_iterate_counts() -> None:
    """Right ones by their objective, then misclassified ones by theirs, then the first hit."""
    images = torch.zeros(1, 1, 1, 1)
    label = torch.tensor([0])
    examples = Examples(torch.tensor([0]), images, label, label, torch.zeros(1, 3))
    state = begin(examples, torch.tensor([2]), images, targeted=True)
    setting, kept = Setting(["a"], Randomness(0, "pgd")), []
    for number, (prediction, objective) in enumerate(
        [(0, 1.0), (0, 5.0), (1, 2.0), (0, 9.0), (1, 1.0), (1, 3.0), (2, 0.5), (1, 99.0)], start=1
    ):
        state["adversarial"] = torch.full_like(images, number)
        logits = nn.functional.one_hot(torch.tensor([prediction]), 3).float()
        record(setting, state, logits, torch.tensor([objective], dtype=torch.float64))
        kept.append((int(state["best"]), bool(state["broken"])))
    assert kept == [*((place, False) for place in (1, 2, 3, 3, 3, 6)), (7, True), (7, True)]
