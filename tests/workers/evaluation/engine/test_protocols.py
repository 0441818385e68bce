from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.attacks.adversarial.fgsm import fgsm
from assay.attacks.adversarial.pgd import pgd
from assay.attacks.adversarial.uniform_noise import uniform_noise
from assay.attacks.judgement import judge
from assay.attacks.kernel import Examples, Setting, State
from assay.attacks.randomness import Randomness
from assay.models.layers.layers import Classifier
from assay.workers.evaluation.engine.ledger import ExampleOutcomes, Ledger
from assay.workers.evaluation.engine.protocols import attack_paper, attack_pixel, classify

N = 500
BATCHES = (7, 64, 500)
IDS = [f"digit-{number:04d}" for number in range(N)]
DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.float32}

# Each breaks 20 to 80 % of the examples.
ATTACKS: dict[str, Callable[[], Any]] = {
    "fgsm": lambda: fgsm(epsilon=0.08),
    "fgsm_l2": lambda: fgsm(epsilon=0.7, norm="L2"),
    "pgd": lambda: pgd(epsilon=0.08, steps=12),
    "pgd_l2_restarts": lambda: pgd(epsilon=0.7, norm="L2", steps=5, relative_step_size=0.3, restarts=2),
    "pgd_targeted": lambda: pgd(epsilon=0.15, steps=8, targeted=True, target="random"),
    "uniform_noise": lambda: uniform_noise(epsilon=0.4, draws=5),
    "pgd_cleverhans": lambda: pgd(epsilon=0.08, steps=8, restarts=2, backend="cleverhans"),
}


@pytest.fixture
def shard(digits: tuple[Tensor, Tensor], model: Classifier) -> Callable[..., ExampleOutcomes]:
    """Runs one evaluation over the first examples."""
    pixels, labels = digits

    def run(
        evaluation: Any, attack: Any = None, *, n: int = N, dtype: str = "float64", **more: Any
    ) -> ExampleOutcomes:
        network = copy.deepcopy(model).to(DTYPES[dtype])
        arguments: dict[str, Any] = {"batch_size": 64, "dtype": dtype, **more}
        if attack is not None:
            arguments.setdefault("randomness", Randomness(0, attack.name))
        subject = [network, lambda rows: pixels[list(rows)], labels[:n], IDS[:n]]
        return evaluation(*([] if attack is None else [attack]), *subject, **arguments)  # type: ignore[no-any-return]

    return run


class StartsRecorded:
    """Passes everything on, and remembers where each example started."""

    def __init__(self, attack: Any) -> None:
        self.attack = attack
        self.starts: dict[int, Tensor] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.attack, name)

    def start(self, setting: Setting, examples: Examples) -> State:
        state: State = self.attack.start(setting, examples)
        # An attack that was given its gradient is a step further.
        first = state["adversarial"] if examples.gradient is None else examples.images
        self.starts |= dict(zip(examples.rows.tolist(), first.clone(), strict=True))
        return state


def differing(one: ExampleOutcomes, other: ExampleOutcomes) -> int:
    """How many examples have another outcome."""
    same = (one.correct == other.correct) & (one.prediction == other.prediction)
    return int((~same).sum())


@pytest.mark.sampled
@pytest.mark.parametrize("name", ATTACKS)
def test_batch_size_changes_nothing_in_float64(shard: Any, name: str) -> None:
    runs = []
    for batch_size in BATCHES:
        attack = StartsRecorded(ATTACKS[name]())
        outcomes = shard(attack_pixel, attack, batch_size=batch_size)
        runs.append((outcomes, attack.starts))
    clean = shard(classify)
    broken = int((clean.correct & ~runs[0][0].correct).sum()) / N
    assert 0.2 <= broken <= 0.8, broken
    for outcomes, starts in runs[1:]:
        first = runs[0][0]
        assert starts.keys() == runs[0][1].keys()
        assert all(torch.equal(start, runs[0][1][row]) for row, start in starts.items())
        for column in ("prediction", "correct", "correct5", "forward", "backward"):
            assert torch.equal(getattr(outcomes, column), getattr(first, column)), column
        # The library's iterates are float32 in any dtype.
        tolerance = 1e-4 if "cleverhans" in name else 1e-9
        torch.testing.assert_close(outcomes.loss, first.loss, rtol=tolerance, atol=tolerance)


@pytest.mark.costly
@pytest.mark.parametrize(
    "name", ["fgsm", "pgd", pytest.param("pgd_l2_restarts", marks=pytest.mark.slow), "uniform_noise"]
)
def test_batch_size_changes_at_most_one_example_in_float32(
    shard: Any,
    name: str,
    capsys: pytest.CaptureFixture[str],
    record_property: Callable[[str, object], None],
) -> None:
    runs = [shard(attack_pixel, ATTACKS[name](), batch_size=size, dtype="float32") for size in BATCHES]
    counts = {size: differing(runs[0], run) for size, run in zip(BATCHES[1:], runs[1:], strict=True)}
    report = f"{name}: outcomes of {N} that differ from batch size {BATCHES[0]} in float32: {counts}"
    record_property("differing", report)
    with capsys.disabled():
        sys.stdout.write(f"\n{report} ")
    assert max(counts.values()) <= 1


@pytest.mark.costly
@pytest.mark.parametrize("name", ["pgd", "fgsm_l2", "pgd_l2_restarts"])
def test_the_paper_protocol_does_not_depend_on_the_batch(shard: Any, name: str) -> None:
    runs = [shard(attack_paper, ATTACKS[name](), batch_size=size) for size in BATCHES]
    for outcomes in runs[1:]:
        for column in ("prediction", "correct", "correct5", "forward", "backward"):
            assert torch.equal(getattr(outcomes, column), getattr(runs[0], column)), column


def test_classify_equals_the_model(shard: Any, digits: tuple[Tensor, Tensor], model: Classifier) -> None:
    outcomes = shard(classify, dtype="float32", batch_size=33)
    pixels, labels = digits[0][:N], digits[1][:N]
    with torch.no_grad():
        logits = model(pixels)
    assert outcomes.ids == tuple(IDS)
    assert torch.equal(outcomes.prediction, logits.argmax(1))
    assert torch.equal(outcomes.correct, logits.argmax(1) == labels)
    assert torch.equal(outcomes.correct5, (logits.topk(5).indices == labels[:, None]).any(1))
    expected = nn.functional.cross_entropy(logits, labels, reduction="none").double()
    torch.testing.assert_close(outcomes.loss, expected, rtol=1e-4, atol=1e-5)
    assert outcomes.forward.tolist() == [1] * N
    assert outcomes.backward.tolist() == [0] * N
    assert 0.8 < float(outcomes.correct.double().mean()) < 1


def test_examples_that_are_wrong_already_are_not_attacked(shard: Any) -> None:
    clean = shard(classify)
    attacked = shard(attack_pixel, pgd(epsilon=0.06, cycle_detection=False))
    wrong = ~clean.correct
    assert wrong.any()
    assert not attacked.correct[wrong].any()
    assert torch.equal(attacked.prediction[wrong], clean.prediction[wrong])
    assert attacked.forward[wrong].tolist() == [1] * int(wrong.sum())
    assert attacked.backward[wrong].sum() == 0
    # Those that hold out took the whole budget, those that broke took less.
    assert set(attacked.forward[attacked.correct].tolist()) == {22}
    assert set(attacked.backward[attacked.correct].tolist()) == {20}
    broken = clean.correct & ~attacked.correct
    assert attacked.forward[broken].double().mean() < 15


def test_adversarial_images_are_returned_when_asked_for_and_say_what_the_outcome_says(
    shard: Any, digits: tuple[Tensor, Tensor], model: Classifier
) -> None:
    assert shard(attack_pixel, pgd(epsilon=0.06), n=50).adversarial is None
    outcomes = shard(attack_pixel, pgd(epsilon=0.06), n=200, keep_adversarial=True)
    pixels = digits[0][:200].double()
    assert (outcomes.adversarial - pixels).abs().max() <= 0.06 + 1e-12
    assert outcomes.adversarial.min() >= 0
    assert outcomes.adversarial.max() <= 1
    with torch.no_grad():
        again = copy.deepcopy(model).double()(outcomes.adversarial)
    assert torch.equal(again.argmax(1), outcomes.prediction)
    assert 0.2 < outcomes.correct.double().mean() < 0.8


def test_the_paper_protocol_attacks_predictions_in_normalised_space(
    shard: Any, digits: tuple[Tensor, Tensor], model: Classifier
) -> None:
    clean = shard(classify)
    # The scale is 0.4, and nothing is clipped.
    attack = fgsm(epsilon=0.2)
    outcomes = shard(attack_paper, attack, keep_adversarial=True)
    network = copy.deepcopy(model).double()
    normalised = network.normalize(digits[0][:N].double())
    points = normalised.clone().requires_grad_(True)
    logits = network.backbone(points)
    loss = nn.functional.cross_entropy(logits, logits.argmax(1), reduction="sum")
    (gradient,) = torch.autograd.grad(loss, points)
    expected = normalised + 0.2 * gradient.sign()
    torch.testing.assert_close(outcomes.adversarial, expected, rtol=0, atol=1e-12)
    assert outcomes.adversarial.min() < float(-0.3 / 0.4) - 0.1
    assert torch.equal(outcomes.prediction, network.backbone(expected).argmax(1))
    became_right = outcomes.correct & ~clean.correct
    assert became_right.any(), "moving away from a wrong prediction makes some examples right"
    assert outcomes.forward.tolist() == [2] * N
    assert outcomes.backward.tolist() == [1] * N


@pytest.mark.costly
def test_images_are_loaded_once_in_order_and_not_ahead_of_need(
    digits: tuple[Tensor, Tensor], model: Classifier
) -> None:
    loaded: list[int] = []
    ahead: list[int] = []
    told: list[int] = []

    def images_of(rows: Sequence[int]) -> Tensor:
        loaded.extend(rows)
        return digits[0][list(rows)]

    def progress(done: int) -> None:
        told.append(done)
        ahead.append(len(loaded) - done)

    attack_pixel(
        pgd(epsilon=0.06),
        model,
        images_of,
        digits[1][:N],
        IDS,
        randomness=Randomness(0, "pgd"),
        batch_size=20,
        progress=progress,
    )
    assert loaded == list(range(N))
    assert told == sorted(told)
    assert told[-1] == N
    assert max(ahead) <= 3 * 20


def test_a_raising_progress_stops_the_run_and_restores_the_model(shard: Any, model: Classifier) -> None:
    class Stopped(Exception):
        pass

    def stop(done: int) -> None:
        raise Stopped

    model.train()
    labels = torch.zeros(8).long()
    with pytest.raises(Stopped):
        classify(
            model, lambda rows: torch.zeros(len(rows), 1, 8, 8), labels, IDS[:8], batch_size=4, progress=stop
        )
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_nothing_is_left_on_the_model(shard: Any, digits: tuple[Tensor, Tensor], model: Classifier) -> None:
    before = copy.deepcopy(model.state_dict())
    for name in ("pgd", "pgd_cleverhans"):
        attack = ATTACKS[name]()
        for evaluation in (attack_pixel, attack_paper):
            evaluation(
                attack,
                model,
                lambda rows: digits[0][list(rows)],
                digits[1][:40],
                IDS[:40],
                randomness=Randomness(0, "pgd"),
                batch_size=16,
            )
            assert all(parameter.grad is None for parameter in model.parameters())
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)


def test_the_seed_matters_and_repeats(shard: Any) -> None:
    attack = uniform_noise(epsilon=0.4)
    runs = [shard(attack_pixel, attack, randomness=Randomness(seed, "uniform_noise")) for seed in (0, 0, 1)]
    assert torch.equal(runs[0].loss, runs[1].loss)
    assert not torch.equal(runs[0].loss, runs[2].loss)


def test_bfloat16_is_autocast_and_float32_outside(shard: Any) -> None:
    exact = shard(classify, n=100, dtype="float32")
    rough = shard(classify, n=100, dtype="bfloat16")
    assert differing(exact, rough) <= 5
    assert not torch.equal(exact.loss, rough.loss)
    outcomes = shard(attack_pixel, pgd(epsilon=0.06, steps=5), n=100, dtype="bfloat16", keep_adversarial=True)
    assert outcomes.adversarial.dtype == torch.float32
    assert 0.1 < outcomes.correct.double().mean() < 0.95


class Odd(nn.Module):
    """Predicts class 0 for all; gradients are zero, or NaN if the first pixel is bright."""

    def forward(self, points: Tensor) -> Tensor:
        first = points.flatten(1)[:, 0]
        root = ((first <= 0.5) + first * 0).sqrt()
        return torch.stack([1 + root, 0 * root], 1)


def flat_images(values: list[float]) -> Callable[[Sequence[int]], Tensor]:
    images = torch.tensor(values).reshape(-1, 1, 1, 1).expand(-1, 1, 2, 2)
    return lambda rows: images[list(rows)]


@pytest.mark.parametrize("backend", ["native", "cleverhans"])
def test_zero_and_nonfinite_gradients_are_counted(backend: str) -> None:
    values = [0.1, 0.2, 0.9, 0.8, 0.3]
    outcomes = attack_pixel(
        pgd(epsilon=0.01, steps=3, random_start=False, backend=backend),
        Odd(),
        flat_images(values),
        torch.tensor([0, 0, 0, 0, 1]),
        IDS[:5],
        randomness=Randomness(0, "pgd"),
        batch_size=2,
    )
    expected = {"nonfinite": 0, "gradients": 4, "zero_gradient": 2, "nonfinite_gradient": 2}
    assert outcomes.evidence() == expected
    assert outcomes.correct.tolist() == [True, True, True, True, False]
    library = attack_pixel(
        fgsm(epsilon=0.01, backend="cleverhans"),
        Odd(),
        flat_images(values),
        torch.zeros(5).long(),
        IDS[:5],
        randomness=Randomness(0, "fgsm"),
        batch_size=5,
    )
    assert library.evidence()["nonfinite"] == 0, "a gradient that is NaN is no success of the attack"
    assert library.correct.all()


def test_logits_that_are_not_finite_are_wrong_and_counted() -> None:
    class Broken(nn.Module):
        def forward(self, points: Tensor) -> Tensor:
            first = points.flatten(1)[:, 0]
            return torch.stack([first + 1, torch.where(first > 0.5, torch.nan, 0.0)], 1)

    images, labels = flat_images([0.1, 0.9, 0.45]), torch.zeros(3).long()
    clean = classify(Broken(), images, labels, IDS[:3], batch_size=2)
    assert clean.correct.tolist() == [True, False, True]
    assert clean.prediction.tolist() == [0, -1, 0]
    assert clean.evidence()["nonfinite"] == 1
    assert math.isnan(clean.loss[1])
    assert clean.columns()["loss"][1] is None
    noise = uniform_noise(epsilon=0.2, draws=20)
    for attack in (attack_pixel, attack_paper):
        model = Classifier(Broken(), [0.0], [1.0])
        outcomes = attack(
            noise, model, images, labels, IDS[:3], randomness=Randomness(0, "uniform_noise"), batch_size=2
        )
        assert not outcomes.correct[1]
        assert outcomes.evidence()["nonfinite"] >= 1
        assert outcomes.evidence()["gradients"] == 0
    assert clean.columns()["id"] == IDS[:3]


def test_fewer_than_five_classes() -> None:
    class Two(nn.Module):
        def forward(self, points: Tensor) -> Tensor:
            first = points.flatten(1)[:, 0]
            return torch.stack([first, 1 - first], 1)

    outcomes = classify(Two(), flat_images([0.9, 0.2]), torch.tensor([0, 0]), IDS[:2], batch_size=2)
    assert outcomes.correct.tolist() == [True, False]
    assert outcomes.correct5.tolist() == [True, True]


@pytest.mark.parametrize("values", [[0.5, 1.5], [-0.1, 0.5], [float("nan"), 0.5]])
def test_images_outside_the_range_are_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match=r"in \[0, 1\]"):
        classify(Odd(), flat_images(values), torch.zeros(2).long(), IDS[:2], batch_size=2)


def test_empty_shards_and_batches_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        classify(Odd(), flat_images([]), torch.zeros(0).long(), [], batch_size=2)
    with pytest.raises(ValueError, match="batch_size is 0"):
        classify(Odd(), flat_images([0.1]), torch.zeros(1).long(), IDS[:1], batch_size=0)


def test_a_ledger_takes_one_outcome_for_every_example() -> None:
    ledger = Ledger(torch.zeros(2).long(), IDS[:2])
    values = judge(torch.zeros(1, 2), torch.zeros(1).long())._asdict()
    ledger.settle(torch.tensor([0]), values, torch.zeros(1, 1, 2, 2), None)
    with pytest.raises(AssertionError, match="one outcome"):
        ledger.settle(torch.tensor([0]), values, torch.zeros(1, 1, 2, 2), None)
    with pytest.raises(AssertionError, match="no outcome"):
        ledger.close(2)
