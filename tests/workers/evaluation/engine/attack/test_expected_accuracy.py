"""Attacks on models that answer at random, judged by the accuracy to expect over fresh draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.attacks.adversarial.apgd import apgd
from assay.attacks.adversarial.apgd_ce import apgd_ce
from assay.attacks.adversarial.autoattack import autoattack
from assay.attacks.adversarial.carlini_wagner import carlini_wagner
from assay.attacks.adversarial.fgsm import fgsm
from assay.attacks.adversarial.pgd import pgd
from assay.attacks.adversarial.sparse_l1_descent import sparse_l1_descent
from assay.attacks.adversarial.spsa import spsa
from assay.attacks.adversarial.square import square
from assay.attacks.ensemble import Ensemble
from assay.attacks.expectation import Expectation
from assay.attacks.kernel import Attack, Examples, Setting, State, begin
from assay.attacks.randomness import Randomness
from assay.models.layers.layers import Classifier
from assay.workers import catalog
from assay.workers.evaluation.engine.attack import expected_accuracy
from assay.workers.evaluation.engine.attack.expected_accuracy import Drawn, ExpectedRun
from assay.workers.evaluation.engine.ledger import ExampleOutcomes
from assay.workers.evaluation.engine.protocols import attack_paper, attack_pixel
from tests.support import networks
from tests.support.random_models import Noisy, to_the_end

N = 150
IDS = [f"digit-{number:04d}" for number in range(N)]
EPSILON = 0.1
CLEAN = networks.digits()[0][:N]
QUICK: dict[str, Callable[..., Attack | Ensemble]] = {
    "apgd": lambda **more: apgd(epsilon=EPSILON, steps=5, **more),
    "apgd_ce": lambda **more: apgd_ce(epsilon=EPSILON, steps=5, restarts=2, **more),
    "pgd": lambda **more: pgd(epsilon=EPSILON, steps=5, restarts=2, cycle_detection=False, **more),
    "fgsm": lambda **more: fgsm(epsilon=EPSILON, **more),
    "sparse_l1_descent": lambda **more: sparse_l1_descent(epsilon=2.0, steps=5, **more),
    "carlini_wagner": lambda **more: carlini_wagner(
        epsilon=3.0, searches=3, iterations=20, learning_rate=0.05, initial_constant=1.0, **more
    ),
    "square": lambda **more: square(epsilon=EPSILON, queries=10, **more),
    "spsa": lambda **more: spsa(epsilon=EPSILON, steps=2, samples=4, **more),
}


class Coin(nn.Module):
    """Class 0 or 1, each with probability 1/2; the loss says nothing about the answer."""

    def forward(self, images: Tensor) -> Tensor:
        chosen = torch.randint(2, (len(images),))
        return nn.functional.one_hot(chosen, 10).to(images) + 0 * images.flatten(1).sum(1, keepdim=True)


@pytest.fixture(scope="module")
def noisy() -> Noisy:
    """Has not seen the digits of these tests; most of them are right in most draws."""
    return Noisy(Classifier(networks.network("gelu"), [networks.MEAN], [networks.STD]), 0.25).eval()


@pytest.fixture
def run(digits: tuple[Tensor, Tensor]) -> Any:
    images, labels = digits

    def go(attack: Any, model: nn.Module, n: int = N, **more: Any) -> ExampleOutcomes:
        arguments: dict[str, Any] = {"batch_size": 50, "randomness": Randomness(0, attack.name), **more}
        with torch.random.fork_rng():
            torch.manual_seed(1)
            return attack_pixel(
                attack, model, lambda rows: images[list(rows)], labels[:n], IDS[:n], **arguments
            )

    return go


@pytest.mark.costly
def test_the_old_rule_is_wrong_by_ten_points_and_the_new_one_by_less_than_one(
    noisy: Noisy, run: Any, digits: tuple[Tensor, Tensor]
) -> None:
    images, labels = digits
    truth = to_the_end(noisy, images[:N], labels[:N], EPSILON)
    found = run(pgd(epsilon=EPSILON, steps=40, eot=20, model_draws=400), noisy)
    assert abs(float(found.expected.mean()) - truth) < 0.01
    assert 0.3 < truth < float(found.clean_expected.mean()) - 0.1
    ensemble = autoattack(epsilon=EPSILON, version="rand", judgement="single_draw")
    assert float(run(ensemble, noisy).correct.double().mean()) < truth - 0.1


@pytest.mark.costly
def test_an_ensemble_for_random_models_is_at_least_as_strong(
    noisy: Noisy, run: Any, digits: tuple[Tensor, Tensor]
) -> None:
    images, labels = digits
    truth = to_the_end(noisy, images[:N], labels[:N], EPSILON)
    found = run(autoattack(epsilon=EPSILON, version="rand", model_draws=200), noisy)
    assert float(found.expected.mean()) < truth + 0.01
    assert [stage.name for stage in found.stages] == ["apgd_ce", "apgd_dlr"]
    first, second = found.stages
    assert first.expected is not None
    assert second.expected == pytest.approx(float(found.expected.sum()))
    # The second stage may replace what the first one left by mistake; beyond that it only lowers.
    assert second.expected < first.expected + 0.01 * N
    assert found.broken_by == (None,) * N


def test_luck_does_not_lower_expected_accuracy(run: Any) -> None:
    """Under any image a coin is right half of the time; the old rule breaks nearly all."""
    lucky = run(pgd(epsilon=EPSILON, steps=20, eot=3, model_draws=50), Coin())
    # Four standard deviations of the mean of 150 x 50 draws; only labels 0 and 1 can be right.
    possible = torch.tensor([label < 2 for label in lucky.labels.tolist()])
    share = lucky.expected[possible].mean()
    assert abs(float(share) - 0.5) < 4 * 0.5 / (50 * int(possible.sum())) ** 0.5
    assert lucky.expected[~possible].eq(0).all()
    single = run(pgd(epsilon=EPSILON, steps=20, eot=3, judgement="single_draw"), Coin())
    assert float(single.correct[possible].double().mean()) < 0.3


@pytest.mark.sampled
@pytest.mark.parametrize("name", QUICK)
def test_a_model_that_is_not_random_is_right_always_or_never(name: str, model: Classifier, run: Any) -> None:
    subject = model.eval()
    once, expected = run(QUICK[name](), subject), run(QUICK[name](eot=2, model_draws=3), subject)
    assert set(expected.expected.tolist()) <= {0.0, 1.0}
    assert torch.equal(expected.correct, expected.expected.bool())
    assert torch.equal(expected.clean_correct, once.clean_correct)
    assert torch.equal(expected.clean_expected.bool(), once.clean_correct)
    # Attacks that stop at the first success, and those that go on, break the same examples, but for searches
    # that continue from another point: of squares, and of L1 steps.
    assert int((expected.correct != once.correct).sum()) <= (3 if name in ("square", "spsa") else 0)


@pytest.mark.sampled
@pytest.mark.parametrize("name", QUICK)
def test_batches_change_nothing_where_the_model_is_not_random(name: str, model: Classifier, run: Any) -> None:
    subject = model.eval().double()
    try:
        attack = QUICK[name](eot=2, model_draws=2)
        whole, parts = (
            run(attack, subject, 40, batch_size=size, dtype="float64", keep_adversarial=True)
            for size in (40, 7)
        )
    finally:
        subject.float()
    assert torch.equal(whole.expected, parts.expected)
    torch.testing.assert_close(whole.adversarial, parts.adversarial, rtol=0, atol=1e-9)
    assert torch.equal(whole.forward, parts.forward)
    assert torch.equal(whole.backward, parts.backward)


@pytest.mark.sampled
@pytest.mark.parametrize("name", QUICK)
def test_passes_are_at_most_those_declared(name: str, noisy: Noisy, run: Any) -> None:
    component = catalog.load().find_evaluation(name)
    schema = component.parameters["properties"]
    own: dict[str, Any] = {
        "apgd": {"steps": 5},
        "apgd_ce": {"steps": 5, "restarts": 2},
        "pgd": {"steps": 5, "restarts": 2},
        "sparse_l1_descent": {"steps": 5},
        "carlini_wagner": {"searches": 3, "iterations": 20},
        "square": {"queries": 10},
        "spsa": {"steps": 2, "samples": 4},
    }.get(name, {})
    defaults = {key: value["default"] for key, value in schema.items() if "default" in value}
    forward, backward = catalog.passes(name, defaults | own | {"eot": 3, "model_draws": 7})
    found = run(QUICK[name](eot=3, model_draws=7), noisy, 20)
    assert int(found.forward.max()) <= forward
    assert int(found.backward.max()) <= backward
    if name in ("pgd", "apgd"):
        assert int(found.forward.max()) == forward - 1  # the unattacked image is judged by draws
        assert int(found.backward.max()) == backward


def test_images_that_no_draw_gets_right_are_not_attacked(run: Any, digits: tuple[Tensor, Tensor]) -> None:
    class Zero(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            return torch.cat([torch.ones(len(images), 1), torch.zeros(len(images), 9)], 1) * images.mean()

    found = run(pgd(epsilon=EPSILON, steps=5, eot=2, model_draws=4), Zero())
    wrong = digits[1][:N] != 0
    assert (found.backward[wrong] == 0).all()
    assert (found.backward[~wrong] == 10).all()
    assert found.linf is not None
    assert (found.linf[wrong] == 0).all()


def test_what_leaves_the_ball_does_not_count(noisy: Noisy, run: Any, monkeypatch: Any) -> None:
    attack = pgd(epsilon=EPSILON, steps=5, eot=2, model_draws=20)
    monkeypatch.setattr(type(attack.ball), "project", lambda _, moved: 3 * moved)
    found = run(attack, noisy, 30)
    assert found.noted["out_of_ball"] == int((found.backward > 0).sum()) > 20
    assert found.linf is not None
    assert (found.linf == 0).all()
    assert torch.equal(found.expected, found.clean_expected)


def test_the_paper_protocol_judges_single_draws(noisy: Noisy, digits: tuple[Tensor, Tensor]) -> None:
    subject = Classifier(noisy, [0.0], [1.0]).eval()
    images, labels = digits
    found = attack_paper(
        *(pgd(epsilon=EPSILON, steps=3, eot=2), subject, lambda rows: images[list(rows)], labels[:20]),
        IDS[:20],
        randomness=Randomness(0, "pgd"),
        batch_size=20,
    )
    assert found.expected is None


def test_draws_that_choose_are_others_than_those_that_judge(run: Any, monkeypatch: Any) -> None:
    keys: list[tuple[Any, ...]] = []
    spied = expected_accuracy.keyed_answers

    def noting(*key: Any) -> Any:
        keys.append(key[:-1])
        return spied(*key)

    monkeypatch.setattr(expected_accuracy, "keyed_answers", noting)
    run(pgd(epsilon=EPSILON, steps=2, eot=2, model_draws=3), Coin(), 4)
    choice, final = keys[::2], keys[1::2]
    assert len(choice) == len(final) == 2  # the image, and the result of the stage
    assert not set(choice) & set(final)


def test_the_choice_among_many_stages_does_not_lower_expected_accuracy(run: Any) -> None:
    """With two draws the luckiest of six images would be right in few of its draws."""
    stages = tuple(pgd(epsilon=EPSILON, steps=2, eot=2, model_draws=2) for _ in range(6))
    found = run(Ensemble("several", stages), Coin())
    possible = found.labels < 2
    error = 0.5 / (2 * int(possible.sum())) ** 0.5
    assert abs(float(found.expected[possible].mean()) - 0.5) < 4 * error


class Scripted:
    """A stage that moves its images to a place of its own."""

    backend, gradient, expectation = "native", False, Expectation(2, draws=3)
    ball = None

    def __init__(self, number: int) -> None:
        self.name, self.number = f"stage {number}", number

    def start(self, setting: Setting, examples: Examples) -> State:
        return begin(examples, examples.labels, examples.images + self.number)

    def step(self, setting: Setting, model: Any, state: State) -> None:
        state["best"] = state["adversarial"]
        state["done"] |= True


@pytest.mark.parametrize("shares", [(0.5, 0.8, 0.6), (0.8, 0.5, 0.6), (0.8, 0.6, 0.5), (0.5, 0.6, 0.8)])
def test_the_stage_with_the_lowest_share_counts_with_anything_after_it(
    shares: tuple[float, ...], run: Any, monkeypatch: Any
) -> None:
    """The second and third must be compared with the best of those before, not with the last."""

    def drawn(self: ExpectedRun, rows: Tensor, images: Tensor, truth: Tensor, purpose: str) -> Drawn:
        number = int((images - CLEAN[rows]).mean().round())
        share = torch.full((len(rows),), (0.9, *shares)[number], dtype=torch.float64)
        logits = torch.nn.functional.one_hot(truth, 10).double()
        self.loader.classes = 10
        return Drawn(share, torch.zeros_like(share), logits, logits)

    monkeypatch.setattr(ExpectedRun, "_drawn", drawn)
    stages = tuple(Scripted(number) for number in (1, 2, 3))
    found = run(Ensemble("several", stages), Coin(), 5, box=None, keep_adversarial=True)
    assert found.expected.tolist() == [0.5] * 5
    best = 1 + shares.index(min(shares))
    torch.testing.assert_close(found.adversarial, CLEAN[:5] + best)
    left = [sum(min((0.9, *shares)[: number + 2]) for _ in range(5)) for number in range(3)]
    assert [stage.expected for stage in found.stages] == pytest.approx(left)


def test_answers_are_replaced_where_chosen() -> None:
    first, second = (
        Drawn(*(torch.full(shape, value) for shape in ((2,), (2,), (2, 3), (2, 3)))) for value in (1.0, 2.0)
    )
    mixed = first.replaced(torch.tensor([False, True]), second)
    assert mixed.share.tolist() == [1, 2]
    assert mixed.first.tolist() == [[1] * 3, [2] * 3]
