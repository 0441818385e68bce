"""Additions of the engine to an attack: stages, verification, memory, late flags."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from assay.attacks.adversarial.apgd import apgd
from assay.attacks.adversarial.assay_fast import assay_fast
from assay.attacks.adversarial.fgsm import fgsm
from assay.attacks.adversarial.fmn import fmn
from assay.attacks.adversarial.pgd import pgd
from assay.attacks.adversarial.square import square
from assay.attacks.adversarial.transfer import transfer
from assay.attacks.adversarial.uniform_noise import uniform_noise
from assay.attacks.ensemble import Ensemble
from assay.attacks.kernel import Examples, Forward, Setting, State, begin
from assay.attacks.randomness import Randomness
from assay.attacks.threat import Ball
from assay.models.layers.layers import Classifier
from assay.workers.evaluation.engine.attack import slots
from assay.workers.evaluation.engine.attack.verification import resume
from assay.workers.evaluation.engine.forward import Passes
from assay.workers.evaluation.engine.ledger import ExampleOutcomes
from assay.workers.evaluation.engine.protocols import attack_paper, attack_pixel, classify

N = 300
IDS = [f"digit-{number:04d}" for number in range(N)]


Run = Callable[..., ExampleOutcomes]


@pytest.fixture
def run(digits: tuple[Tensor, Tensor], model: Classifier) -> Run:
    pixels, labels = digits

    def go(
        attack: Any, network: nn.Module | None = None, *, evaluation: Any = attack_pixel, **more: Any
    ) -> Any:
        arguments: dict[str, Any] = {"batch_size": 32, "randomness": Randomness(0, attack.name), **more}
        subject = copy.deepcopy(model) if network is None else network
        return evaluation(attack, subject, lambda rows: pixels[list(rows)], labels[:N], IDS, **arguments)

    return go


EPSILON = 0.06


def stages() -> tuple[Any, ...]:
    return (uniform_noise(epsilon=EPSILON), fgsm(epsilon=EPSILON / 2), pgd(epsilon=EPSILON, steps=10))


def test_an_ensemble_is_the_worst_case_of_its_stages(run: Run) -> None:
    alone = [run(stage).correct for stage in stages()]
    told: list[Any] = []
    together = run(Ensemble("several", stages()), staged=told.append)
    assert torch.equal(together.correct, torch.stack(alone).all(0))
    clean = int(together.clean_correct.sum())
    left = [clean, *(int(torch.stack(alone[: number + 1]).all(0).sum()) for number in range(3))]
    assert [stage.n for stage in together.stages] == left[:3]
    assert [stage.broken for stage in together.stages] == [before - after for before, after in pairwise(left)]
    assert told == list(together.stages)
    assert left[0] > left[1] > left[2] > left[3] > 0, "otherwise this tests nothing"
    assert sum(stage.forward for stage in together.stages) == int(together.forward.sum())
    assert sum(stage.backward for stage in together.stages) == int(together.backward.sum())


def test_what_the_first_stage_breaks_altogether_leaves_the_others_nothing(run: Run) -> None:
    everything, nothing = fgsm(epsilon=1.0), pgd(epsilon=EPSILON)
    outcomes = run(Ensemble("several", (pgd(epsilon=1.0), nothing, everything)))
    assert not outcomes.correct.any()
    assert [stage.n for stage in outcomes.stages] == [int(outcomes.clean_correct.sum()), 0, 0]
    assert [stage.forward for stage in outcomes.stages[1:]] == [0, 0]
    assert set(outcomes.broken_by) == {"pgd", None}


@pytest.mark.costly
def test_stages_do_not_depend_on_the_batch(run: Run, model: Classifier) -> None:
    exact = copy.deepcopy(model).double()
    runs = [
        run(Ensemble("several", stages()), exact, batch_size=size, dtype="float64") for size in (7, 64, 300)
    ]
    for other in runs[1:]:
        for column in ("correct", "prediction", "forward", "backward"):
            assert torch.equal(getattr(other, column), getattr(runs[0], column)), column
        torch.testing.assert_close(other.linf, runs[0].linf)


def test_progress_rises_to_the_end(run: Run) -> None:
    told: list[int] = []
    run(Ensemble("several", stages()), progress=told.append)
    assert told == sorted(told)
    assert told[-1] == N
    assert len({*told}) > 15


def test_paper_has_no_ensembles(run: Run) -> None:
    with pytest.raises(ValueError, match="several is a worst case"):
        run(Ensemble("several", stages()), evaluation=attack_paper)


def test_sizes_are_those_of_the_images_that_count(run: Run, digits: tuple[Tensor, Tensor]) -> None:
    outcomes = run(pgd(epsilon=EPSILON, steps=5), keep_adversarial=True)
    assert outcomes.adversarial is not None
    difference = (outcomes.adversarial - digits[0][:N]).flatten(1).double()
    torch.testing.assert_close(outcomes.linf, difference.abs().amax(1))
    torch.testing.assert_close(outcomes.l2, difference.norm(dim=1), rtol=1e-5, atol=1e-7)
    assert (outcomes.linf[~outcomes.clean_correct] == 0).all()
    assert outcomes.linf.max() <= EPSILON + 1e-6
    assert outcomes.linf.max() > 0.9 * EPSILON


@pytest.mark.costly
def test_rounding_to_8_bits_is_judged_when_images_are_kept(run: Run) -> None:
    assert run(pgd(epsilon=EPSILON)).correct8 is None
    outcomes = run(pgd(epsilon=EPSILON), keep_adversarial=True)
    assert not outcomes.correct8[~outcomes.clean_correct].any()
    assert outcomes.correct8[outcomes.correct].all(), "no adversarial example, nothing to round"
    revived = outcomes.correct8 & ~outcomes.correct
    # Steps of 0.15 epsilon cross the boundary by little, and half a level of 255 takes some of them back.
    assert 0 < int(revived.sum()) < 30


@dataclass(frozen=True)
class Planted:
    """Claims a success for every example, with an image of the test's choice."""

    make: Callable[[Tensor], Tensor]
    ball: ClassVar[Ball] = Ball("Linf", 0.1)
    name: ClassVar[str] = "planted"
    backend: ClassVar[str] = "native"
    gradient: ClassVar[bool] = False

    def start(self, setting: Setting, examples: Examples) -> State:
        return begin(examples, examples.labels, examples.images)

    def step(self, setting: Setting, model: Forward, state: State) -> None:
        state["best"] = self.make(state["images"])
        state["broken"] = torch.ones_like(state["broken"])
        state["logits"] = nn.functional.one_hot((state["truth"] + 1) % 10, 10).to(state["images"])
        state["forward"] += 1


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda images: images, "unverified"),
        (lambda images: (images + 0.3).clamp(0, 1), "out_of_ball"),
        (lambda images: images - 0.05, "out_of_box"),
    ],
)
def test_false_successes_do_not_count_and_are_told(
    run: Run, make: Callable[[Tensor], Tensor], reason: str
) -> None:
    outcomes = run(Planted(make))
    if reason != "out_of_box":  # there some of them are misclassified, and are refused all the same
        assert torch.equal(outcomes.correct, outcomes.clean_correct)
    assert outcomes.evidence()[reason] > 0
    assert torch.equal(outcomes.correct, outcomes.clean_correct)
    assert torch.equal(outcomes.prediction[outcomes.correct], outcomes.labels[outcomes.correct])


@pytest.mark.costly
def test_what_one_stage_claims_falsely_the_next_one_attacks(run: Run) -> None:
    attack = Ensemble("several", (Planted(lambda images: images), pgd(epsilon=EPSILON)))
    outcomes = run(attack)
    assert torch.equal(outcomes.correct, run(pgd(epsilon=EPSILON)).correct)
    assert outcomes.stages[0].broken == 0


class Small(nn.Module):
    """A device whose memory holds so many images at a time."""

    def __init__(self, model: nn.Module, most: int) -> None:
        super().__init__()
        self.model, self.most, self.largest = model, most, 0

    def forward(self, images: Tensor) -> Tensor:
        if len(images) > self.most:
            raise torch.OutOfMemoryError("planted")
        self.largest = max(self.largest, len(images))
        logits: Tensor = self.model(images)
        return logits


@pytest.mark.costly
@pytest.mark.parametrize("attack", stages(), ids=lambda attack: attack.name)
def test_out_of_memory_halves_the_passes_and_changes_nothing(
    run: Run, model: Classifier, attack: Any
) -> None:
    exact = copy.deepcopy(model).double()
    plain = run(attack, exact, batch_size=32, dtype="float64")
    small = Small(exact, 5)
    outcomes = run(attack, small, batch_size=32, dtype="float64")
    for column in ("correct", "prediction", "forward", "backward"):
        assert torch.equal(getattr(outcomes, column), getattr(plain, column)), column
    torch.testing.assert_close(outcomes.loss, plain.loss, rtol=1e-9, atol=1e-9)
    assert outcomes.evidence()["reduced_batch"] == {"asked": 32, "used": 4}
    assert small.largest == 4
    assert "reduced_batch" not in plain.evidence()


def test_one_image_that_does_not_fit_is_an_error(run: Run, model: Classifier) -> None:
    with pytest.raises(torch.OutOfMemoryError, match="one image"):
        run(fgsm(epsilon=EPSILON), Small(model, 0))


def test_screening_only_finds_more(run: Run) -> None:
    plain = run(pgd(epsilon=EPSILON, steps=5))
    told: list[Any] = []
    screened = run(pgd(epsilon=EPSILON, steps=5), screening="bfloat16", staged=told.append)
    assert not (screened.correct & ~plain.correct).any()
    first, second = told
    assert (first.n, second.n) == (int(plain.clean_correct.sum()), first.n - first.broken)
    assert first.broken > second.broken


@pytest.mark.costly
def test_screening_in_bfloat16_leaves_no_more_right_than_float32(run: Run) -> None:
    for attack in (
        pgd(epsilon=EPSILON, steps=30, relative_step_size=0.05),
        uniform_noise(epsilon=0.3, draws=5),
    ):
        exact, rough = run(attack), run(attack, screening="bfloat16")
        assert not (rough.correct & ~exact.correct).any(), attack.name
        assert "unverified" not in rough.evidence()


def test_gradients_alone_are_in_bfloat16(run: Run, model: Classifier) -> None:
    """Logits are those of float32, bit for bit, and gradients those of autocast."""
    loader = Passes(model.eval(), torch.device("cpu"))
    images = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0)).requires_grad_()

    def slope(passes: Passes) -> tuple[Tensor, Tensor]:
        logits = passes(images)
        return logits, torch.autograd.grad(logits[:, 0].sum(), images)[0]

    exact, rough, mixed = map(slope, (loader, loader.in_bfloat16(), loader.with_bfloat16_gradients()))
    assert torch.equal(mixed[0], exact[0])
    assert not torch.equal(rough[0], exact[0])
    assert torch.equal(mixed[1], rough[1])
    assert not torch.equal(mixed[1], exact[1])
    with torch.no_grad():
        assert torch.equal(loader.with_bfloat16_gradients()(images), exact[0])


@pytest.mark.costly
def test_gradients_in_bfloat16_need_no_second_run(run: Run) -> None:
    attack = pgd(epsilon=EPSILON, steps=10)
    plain, mixed = run(attack), run(attack, screening="bfloat16_gradients")
    assert int((plain.correct != mixed.correct).sum()) <= 3
    # As many passes of the examples that hold out as in float32 alone.
    held = plain.correct & mixed.correct
    assert torch.equal(mixed.forward[held], plain.forward[held])
    assert "unverified" not in mixed.noted
    ensemble = run(Ensemble("both", (attack, apgd(epsilon=EPSILON, steps=5))), screening="bfloat16_gradients")
    assert [stage.name for stage in ensemble.stages] == ["pgd", "apgd"]


@pytest.mark.costly
def test_dtype_bfloat16_has_one_run_with_gradients_in_bfloat16(run: Run) -> None:
    """Nothing but the unattacked images is judged as in no other run."""
    attack, told = pgd(epsilon=EPSILON, steps=10), list[Any]()
    mixed = run(attack, screening="bfloat16_gradients")
    rough = run(attack, dtype="bfloat16", staged=told.append)
    assert [stage.n for stage in told] == [int(rough.clean_correct.sum())]
    attacked = mixed.clean_correct & rough.clean_correct
    assert int((mixed.clean_correct != rough.clean_correct).sum()) <= 2
    for column in ("correct", "prediction", "forward", "backward"):
        assert torch.equal(getattr(mixed, column)[attacked], getattr(rough, column)[attacked]), column
    both = [outcomes.evidence()["judgement"] for outcomes in (mixed, rough)]
    assert both[0].keys() == both[1].keys()
    noise = uniform_noise(epsilon=0.3, draws=5)
    assert "judgement" not in run(noise, dtype="bfloat16").evidence(), "without gradients all is in float32"


@pytest.mark.costly
@pytest.mark.parametrize("screening", ["bfloat16", "bfloat16_gradients"])
def test_stages_that_ran_in_autocast_are_named(run: Run, screening: str) -> None:
    """Attacks without gradients or without a ball never do."""
    shrinking = fmn(steps=3)
    noise = uniform_noise(epsilon=0.01)
    for attack in (shrinking, noise):
        assert run(attack, screening=screening).evidence()["screened"] == [], attack.name
        assert run(attack, dtype="bfloat16").evidence()["screened"] == []
    both = Ensemble("several", (noise, pgd(epsilon=EPSILON, steps=3)))
    assert run(both, screening=screening).evidence()["screened"] == ["pgd"]
    assert run(both, dtype="bfloat16").evidence()["screened"] == ["pgd"]
    assert "screened" not in run(both).evidence()
    assert run(both, screening=screening, batch_size=N).evidence()["screened"] == ["pgd"]


def test_a_transfer_takes_no_gradient_of_the_attacked_model(run: Run, model: Classifier) -> None:
    other = Passes(copy.deepcopy(model).eval(), torch.device("cpu"))
    attack = transfer(job="other", epsilon=EPSILON, steps=2).on([other])
    assert run(attack, screening="bfloat16_gradients").evidence()["screened"] == []
    assert run(attack, screening="bfloat16").evidence()["screened"] == ["transfer"]


@pytest.mark.costly
def test_screening_is_no_evidence_of_its_own(run: Run) -> None:
    attack = pgd(epsilon=EPSILON, steps=20, relative_step_size=0.02, random_start=False)
    plain, screened = run(attack), run(attack, screening="bfloat16")
    assert 0 < screened.evidence()["unconverged"] <= plain.evidence()["unconverged"]
    assert screened.stages == (), "one attack has no stages"


@pytest.mark.costly
def test_a_stage_that_comes_twice_is_told_apart(run: Run) -> None:
    again = Ensemble(
        "several", (pgd(epsilon=EPSILON / 2), uniform_noise(epsilon=EPSILON), pgd(epsilon=EPSILON))
    )
    outcomes = run(again, screening="bfloat16")
    assert [(stage.number, stage.name) for stage in outcomes.stages] == [
        (0, "pgd"), (0, "pgd"), (1, "uniform_noise"), (2, "pgd"), (2, "pgd")
    ]  # fmt: skip


def test_a_stage_that_comes_twice_draws_anew(run: Run) -> None:
    stage = uniform_noise(epsilon=0.25)
    alone = run(stage)
    outcomes = run(Ensemble("several", (stage, stage, stage)))
    assert outcomes.stages[0].broken == int((alone.clean_correct & ~alone.correct).sum())
    assert outcomes.stages[1].broken > 0


class Noisy(nn.Module):
    """A model whose answers change from pass to pass."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.model(images)
        return logits + 3 * torch.randn_like(logits)


def test_luck_against_a_random_model_does_not_count(run: Run, model: Classifier) -> None:
    torch.manual_seed(0)
    outcomes = run(uniform_noise(epsilon=0.01, draws=20), Noisy(model))
    assert outcomes.evidence()["unverified"] > 50


@pytest.mark.costly
@pytest.mark.parametrize("attack", [*stages(), pgd(epsilon=EPSILON, steps=5, restarts=3)], ids=range(4))
def test_flags_that_come_a_step_late_change_nothing(
    run: Run, attack: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = run(attack)
    later = slots.run_slots
    monkeypatch.setattr(
        "assay.workers.evaluation.engine.attack.stages.run_slots",
        lambda *args, **kwargs: later(*args, **kwargs, late=True),
    )
    late = run(attack)
    for column in ("correct", "prediction", "forward", "backward"):
        assert torch.equal(getattr(late, column), getattr(plain, column)), column
    torch.testing.assert_close(late.loss, plain.loss, rtol=1e-5, atol=1e-6)


def test_a_late_flag_costs_the_device_one_step_and_no_more(run: Run, model: Classifier) -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.images = 0

        def forward(self, images: Tensor) -> Tensor:
            self.images += len(images)
            logits: Tensor = model(images)
            return logits

    network = Counting()
    outcomes = run(pgd(epsilon=EPSILON), network)
    assert network.images == int(outcomes.forward.sum()), "on the CPU nothing is run in vain"


def test_the_clean_evaluation_has_no_sizes(digits: tuple[Tensor, Tensor], model: Classifier) -> None:
    def images_of(rows: Sequence[int]) -> Tensor:
        return digits[0][list(rows)]

    outcomes = classify(model, images_of, digits[1][:N], IDS, batch_size=50)
    assert outcomes.linf is None
    assert {"linf", "l2", "correct8"}.isdisjoint(outcomes.columns())


class Flattering(nn.Module):
    """A model whose gradient passes see less of the true class than it is: successes there are often none."""

    def __init__(self, model: nn.Module, error: float) -> None:
        super().__init__()
        self.model = model
        self.error = error

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.model(images)
        if images.requires_grad:
            top = logits.detach().argmax(1, keepdim=True)
            return logits.scatter_add(1, top, torch.full_like(top, -self.error, dtype=logits.dtype))
        return logits


@pytest.mark.costly
@pytest.mark.parametrize(
    ("attack", "batch_size"),
    [
        (pgd(epsilon=EPSILON, steps=20), 7),
        (pgd(epsilon=EPSILON, steps=20), 64),
        (apgd(epsilon=EPSILON, steps=20), 64),
        (assay_fast(epsilon=EPSILON, check_share=0.0), 64),
    ],
)
def test_a_success_that_is_refused_goes_on(
    run: Run, model: Classifier, attack: Any, batch_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    flattering = Flattering(copy.deepcopy(model), 0.2)
    exact, outcomes = run(attack), run(attack, flattering, batch_size=batch_size)
    assert outcomes.noted["refused"] > 3
    assert 0 < outcomes.noted["refused_then_broken"] <= outcomes.noted["refused"]
    # The gradient is that of the model, so that the attack finds what it finds without the error.
    assert abs(int(outcomes.correct.sum()) - int(exact.correct.sum())) <= 4
    monkeypatch.setattr("assay.workers.evaluation.engine.attack.stages.NATIVE", "none")
    old = run(attack, flattering, batch_size=batch_size)
    assert "refused" not in old.noted
    assert int(old.correct.sum()) > int(outcomes.correct.sum())
    assert old.noted["unverified"] > outcomes.noted.get("unverified", 0)


@pytest.mark.costly
def test_refused_successes_cost_what_they_cost_and_do_not_depend_on_the_batch(
    run: Run, model: Classifier
) -> None:
    flattering = Flattering(copy.deepcopy(model).double(), 0.5)
    attack = Ensemble("two", (pgd(epsilon=EPSILON, steps=12), square(epsilon=EPSILON, queries=40)))
    first, second = (run(attack, flattering, batch_size=size, dtype="float64") for size in (5, 300))
    assert first.noted["refused"] > 20
    assert first.broken_by == second.broken_by
    for column in ("correct", "prediction", "forward", "backward", "queries"):
        assert torch.equal(getattr(first, column), getattr(second, column)), column
    assert sum(stage.forward for stage in first.stages) == int(first.forward.sum())
    assert [stage.n for stage in first.stages] == [stage.n for stage in second.stages]
    assert first.stages[0].n == int(first.clean_correct.sum())
    assert first.stages[1].n == first.stages[0].n - first.stages[0].broken


def test_a_demand_doubles_and_is_never_below_rounding() -> None:
    logits = torch.tensor([[1.0, 2.0], [100.0, 90.0], [3.0, 3.0]])
    state = {
        "images": torch.zeros(3, 1),
        "logits": logits,
        "broken": torch.ones(3, dtype=torch.bool),
        "demand": torch.tensor([0.0, 0.0, 5.0], dtype=torch.float64),
        "refused": torch.tensor([0, 0, 1]),
        "forward": torch.tensor([4, 4, 4]),
        "backward": torch.tensor([4, 4, 4]),
        "prediction": torch.tensor([1, 0, 0]),
    }
    found = resume(state, torch.tensor([0.25, 0.0, float("nan")], dtype=torch.float64))
    eps = torch.finfo(torch.float32).eps
    torch.testing.assert_close(found["demand"], torch.tensor([0.5, 800 * eps, 10.0], dtype=torch.float64))
    assert found["refused"].tolist() == [1, 1, 2]
    assert not found["broken"].any()
    assert found["forward"].tolist() == [0, 0, 0]
    assert "prediction" not in found
