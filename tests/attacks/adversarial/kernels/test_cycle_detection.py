"""Cycles that are known, found exactly; and PGD with and without looking for them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.attacks.adversarial.kernels.cycle_detection import (
    compare,
    landmark_at,
    same_bits,
    watch,
    watch_again,
    whole_turns,
)
from assay.attacks.adversarial.pgd import pgd
from assay.attacks.randomness import Randomness
from assay.workers.evaluation.engine.ledger import ExampleOutcomes
from assay.workers.evaluation.engine.protocols import attack_pixel

# A case is one network, norm or size of one law: a sixteenth of them in each commit.
pytestmark = pytest.mark.sampled


def is_landmark(number: int) -> bool:
    return not bin(number)[2:][3:].strip("0")


def detection(tail: int, period: int) -> int:
    """The number of the iterate at which a cycle of this length after this tail is noticed, by search."""
    position = [n if n < tail else tail + (n - tail) % period for n in range(2000)]
    landmark = 0
    for number in range(1, 2000):
        if position[number] == position[landmark]:
            return number
        landmark = number if is_landmark(number) else landmark
    raise AssertionError("not found")


def test_landmarks_grow_apart() -> None:
    numbers = torch.arange(-1, 600)
    expected = [max((n for n in range(m + 1) if is_landmark(n)), default=0) for m in numbers.tolist()]
    assert landmark_at(numbers).tolist() == expected
    assert sorted(set(expected))[:16] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_images_are_compared_bit_for_bit(dtype: torch.dtype) -> None:
    one = torch.tensor([[0.5, 0.0], [0.5, 0.0], [torch.nan, 1.0], [0.5, 1.0]], dtype=dtype)
    other = torch.tensor([[0.5, 0.0], [0.5, -0.0], [torch.nan, 1.0], [0.5, 1.0]], dtype=dtype)
    other[3, 0] += torch.finfo(dtype).eps
    shaped = (one.reshape(4, 1, 1, 2), other.reshape(4, 1, 1, 2))
    assert same_bits(*shaped).tolist() == [True, False, True, False]


TAILS = [(tail, period) for tail in (0, 1, 2, 3, 7, 8, 13, 40, 65) for period in (1, 2, 3, 5, 12, 17, 31)]


def test_the_length_of_every_cycle_is_exact_with_any_other_slots() -> None:
    tails, periods = (torch.tensor(column) for column in zip(*TAILS, strict=True))
    late = torch.arange(len(TAILS)) % 4  # slots begin at different times

    def point(number: Tensor) -> Tensor:
        place = torch.where(number < tails, number, tails + (number - tails) % periods)
        return place.reshape(-1, 1, 1, 1).double()

    number = torch.zeros_like(tails)
    state = {"adversarial": point(number), "iteration": number} | watch(point(number))
    found = torch.zeros_like(tails)
    for step in range(300):
        moved = late <= step
        number = number + moved
        state |= {"adversarial": point(number), "iteration": number}
        compare(state, moved)
        found = torch.where((found == 0) & (state["period"] > 0), number, found)
    assert torch.equal(state["period"], periods)
    assert found.tolist() == [detection(tail, period) for tail, period in TAILS]
    # Not before it could be known, and not much later.
    assert (found >= tails + periods).all()
    assert (found <= torch.maximum(1.25 * tails + 1, 8 * periods) + periods).all()


def test_a_slot_that_rests_or_begins_anew_has_found_nothing() -> None:
    image = torch.full((2, 1, 1, 1), 0.5)
    state = {"adversarial": image, "iteration": torch.tensor([1, 1])} | watch(image)
    compare(state, torch.tensor([True, False]))
    assert state["period"].tolist() == [1, 0]
    watch_again(state, torch.tensor([0]), torch.full((1, 1, 1, 1), 0.25))
    assert state["period"].tolist() == [0, 0]
    assert state["landmark"].flatten().tolist() == [0.25, 0.5]


def test_whole_turns_lead_back_and_leave_less_than_one() -> None:
    state = {"period": torch.tensor([0, 1, 2, 7, 7, 7])}
    assert whole_turns(state, torch.tensor([9, 9, 9, 9, 7, 6])).tolist() == [0, 9, 8, 7, 7, 0]


class Walk(nn.Module):
    """On a grid of two pixels, gradients lead along a row to a rectangle, and then around it forever.

    The label stays right; its probability depends on the place, so that one iterate has the highest loss.
    """

    def __init__(self, tail: int, width: int, height: int) -> None:
        super().__init__()
        self.directions = torch.zeros(64, 64, 2, dtype=torch.float64)
        self.right, self.top = tail + width, height
        self.directions[: self.right, 0] = torch.tensor([1.0, 0.0])
        self.directions[self.right, : self.top] = torch.tensor([0.0, 1.0])
        self.directions[tail + 1 : self.right + 1, self.top] = torch.tensor([-1.0, 0.0])
        self.directions[tail, 1 : self.top + 1] = torch.tensor([0.0, -1.0])
        places = torch.rand(64, 64, generator=torch.Generator().manual_seed(tail + width))
        self.confidence = 1 + places.double()

    def forward(self, points: Tensor) -> Tensor:
        flat = points.flatten(1)
        x, y = (flat.detach() * 64).long().unbind(1)
        slope = ((flat - flat.detach()) * self.directions[x, y]).sum(1)
        logit = self.confidence[x, y] - slope
        return torch.stack([logit, torch.zeros_like(logit)], 1)

    def path(self, steps: int) -> list[tuple[int, int]]:
        """The places of the iterates, walked one by one."""
        places = [(0, 0)]
        for _ in range(steps):
            x, y = places[-1]
            right, up = self.directions[x, y].tolist()
            places.append((x + int(right), y + int(up)))
        return places


WALKS = [(0, 1, 1), (5, 2, 1), (9, 1, 3), (20, 4, 3), (40, 7, 9)]


@pytest.mark.parametrize("walk", WALKS, ids=str)
@pytest.mark.parametrize("steps", [1, 16, 17, 47, 48, 49, 50, 51, 133, 200])
def test_the_final_iterate_is_where_all_the_steps_would_have_led(
    walk: tuple[int, int, int], steps: int, run: Any
) -> None:
    model, seen = Walk(*walk), []
    model.register_forward_hook(lambda _, inputs, __: seen.append(len(inputs[0])))
    image = torch.zeros(1, 1, 1, 2, dtype=torch.float64)
    attack = pgd(epsilon=1, step_size=1 / 64, steps=steps, random_start=False)
    state = run(attack, model, image, torch.tensor([0]), box=None, final_iterate=True)
    assert tuple((state["best"].flatten() * 64).tolist()) == model.path(steps)[-1]
    tail, period = walk[0], 2 * (walk[1] + walk[2])
    # The flag is read every 16 steps, and what is left is less than a turn.
    assert state["forward"].item() <= min(steps, detection(tail, period) + 16 + period) + 1
    assert len(seen) - 1 == state["forward"].item()


@pytest.mark.parametrize("walk", WALKS, ids=str)
def test_a_restart_ends_when_all_its_iterates_were_seen(walk: tuple[int, int, int], run: Any) -> None:
    model, image = Walk(*walk), torch.zeros(1, 1, 1, 2, dtype=torch.float64)
    attack = pgd(epsilon=1, step_size=1 / 64, steps=500, random_start=False)
    state = run(attack, model, image, torch.tensor([0]))
    seen = model.path(500)
    weakest = min(seen, key=lambda place: model.confidence[place].item())
    assert tuple((state["best"].flatten() * 64).tolist()) == weakest
    assert state["forward"].item() == detection(walk[0], 2 * (walk[1] + walk[2]))
    assert state["backward"].item() == state["forward"].item()


def attacked(
    model: nn.Module, digits: tuple[Tensor, Tensor], batch_size: int = 32, **params: Any
) -> ExampleOutcomes:
    pixels, labels = digits
    attack = pgd(**params)

    def images_of(rows: Sequence[int]) -> Tensor:
        return pixels[list(rows)]

    return attack_pixel(
        attack,
        model,
        images_of,
        labels[:96],
        [f"digit-{row}" for row in range(96)],
        randomness=Randomness(0, attack.name),
        batch_size=batch_size,
        dtype="float64",
        keep_adversarial=True,
    )


def assert_same_outcomes(one: ExampleOutcomes, other: ExampleOutcomes) -> None:
    for column in ("prediction", "correct", "correct5", "clean_correct"):
        assert torch.equal(getattr(one, column), getattr(other, column)), column
    torch.testing.assert_close(one.loss, other.loss, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(one.adversarial, other.adversarial, rtol=0, atol=1e-9)


@pytest.mark.parametrize("restarts", [1, 3])
@pytest.mark.parametrize(("norm", "epsilon"), [("Linf", 0.05), ("L2", 0.4)])
def test_pixel_outcomes_are_those_without_it(
    digits: tuple[Tensor, Tensor], network: nn.Module, norm: str, epsilon: float, restarts: int
) -> None:
    model, params = copy.deepcopy(network).double(), {"steps": 100, "restarts": restarts}
    params |= {"norm": norm, "epsilon": epsilon}
    found, plain = (attacked(model, digits, **params, cycle_detection=on) for on in (True, False))
    assert_same_outcomes(found, plain)
    assert 10 < int(found.correct.sum()) < 90, "an epsilon that breaks some and not all"
    assert (found.forward <= plain.forward).all()
    assert (found.backward <= plain.backward).all()
    # The early exit is untouched where an example breaks in its first restart.
    if restarts == 1:
        assert torch.equal(found.forward[~found.correct], plain.forward[~plain.correct])
    if norm == "Linf":
        assert int(found.forward[found.correct].sum()) < 0.6 * int(plain.forward[found.correct].sum())


def test_passes_do_not_depend_on_the_batch(digits: tuple[Tensor, Tensor], network: nn.Module) -> None:
    model, params = copy.deepcopy(network).double(), {"steps": 60, "restarts": 3, "epsilon": 0.05}
    one, other = (attacked(model, digits, batch_size=size, **params) for size in (96, 7))
    assert_same_outcomes(one, other)
    assert torch.equal(one.forward, other.forward)
    assert torch.equal(one.backward, other.backward)


@pytest.mark.parametrize("restarts", [1, 2])
def test_final_iterates_are_those_without_it(
    digits: tuple[Tensor, Tensor], network: nn.Module, run: Any, restarts: int
) -> None:
    model, images, labels = copy.deepcopy(network).double(), digits[0][:96].double(), digits[1][:96]
    states = [
        run(
            pgd(epsilon=0.05, steps=203, restarts=restarts, cycle_detection=on),
            *(model, images, labels),
            box=None,
            final_iterate=True,
        )
        for on in (True, False)
    ]
    for key in ("best", "objective", "loss"):
        torch.testing.assert_close(states[0][key], states[1][key], rtol=1e-9, atol=1e-12)
    for key in ("prediction", "rank", "nonfinite"):
        assert torch.equal(states[0][key], states[1][key])
    assert (states[0]["forward"] < states[1]["forward"]).all()


def test_the_library_has_none(digits: tuple[Tensor, Tensor], network: nn.Module, run: Any) -> None:
    params: dict[str, Any] = {"epsilon": 0.05, "steps": 40, "backend": "cleverhans"}
    on, off = (
        run(pgd(**params, cycle_detection=on), network, digits[0][:5], digits[1][:5]) for on in (True, False)
    )
    assert torch.equal(on["best"], off["best"])
    assert on["forward"].tolist() == off["forward"].tolist() == [41] * 5
