"""Passes of models that answer at random: what is averaged, what counts, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from assay.attacks.adversarial.apgd_ce import apgd_ce
from assay.attacks.adversarial.square import square
from assay.attacks.expectation import Average, Expectation, lower, share_right
from assay.attacks.kernel import Examples, Setting, State, begin, record
from assay.attacks.passes import ask, evaluate
from assay.attacks.randomness import Randomness

LABELS = torch.tensor([0, 1, 0, 1])
WEIGHTS = ([1.0, -2.0], [3.0, 0.5], [-1.0, 0.25])


class Turning:
    """Logits of 2 classes, each a multiple of one pixel; the next multiples at every pass."""

    def __init__(self) -> None:
        self.passes = 0

    def __call__(self, points: Tensor) -> Tensor:
        weights = torch.tensor(WEIGHTS[self.passes % len(WEIGHTS)], dtype=points.dtype)
        self.passes += 1
        return points.flatten(1) * weights


def squared_margin(logits: Tensor) -> Tensor:
    """A loss that is not linear in the logits, so that the two averages differ."""
    return (logits[:, 1] - logits[:, 0]).square()


def state_of(points: Tensor) -> State:
    images = points[:, None, None, None]
    examples = Examples(torch.arange(4), images, LABELS, LABELS, torch.zeros(4, 2, dtype=torch.float64))
    unknown = torch.full((4,), torch.nan, dtype=torch.float64)
    return begin(examples, LABELS, images) | {"accuracy": unknown, "lowest": unknown}


@pytest.mark.parametrize("average", ["losses", "logits"])
def test_losses_or_logits_are_averaged(average: Average) -> None:
    """Against the two formulas, by hand: margins are -3 x, -2.5 x and 1.25 x."""
    points = torch.tensor([0.5, 1.0, -1.0, 2.0], dtype=torch.float64)
    state, slopes = state_of(points), torch.tensor([-3.0, -2.5, 1.25], dtype=torch.float64)
    with torch.no_grad():
        wants = torch.tensor([True, True, True, False])
        logits, values, gradient = evaluate(Turning(), state, squared_margin, wants, Expectation(3, average))
    square = slopes.square().mean() if average == "losses" else slopes.mean().square()
    torch.testing.assert_close(values, square * points.square())
    expected = 2 * square * points * wants
    torch.testing.assert_close(gradient.flatten(), expected)
    torch.testing.assert_close(logits, points[:, None] * torch.tensor(WEIGHTS, dtype=torch.float64).mean(0))
    # Class 0 is right where the margin is below 0, or equal.
    assert state["accuracy"].tolist() == [2 / 3, 1 / 3, 1 / 3, 1 / 3]
    assert state["forward"].tolist() == [3] * 4
    assert state["backward"].tolist() == [3, 3, 3, 0]


def test_without_gradients_the_same_passes_are_asked() -> None:
    points = torch.tensor([0.5, 1.0, -1.0, 2.0], dtype=torch.float64)
    one, other = state_of(points), state_of(points)
    with torch.no_grad():
        asked = ask(Turning(), one, squared_margin, Expectation(3))
        differentiated = evaluate(Turning(), other, squared_margin, torch.ones(4).bool(), Expectation(3))
    assert torch.equal(asked[0], differentiated[0])
    assert torch.equal(asked[1], differentiated[1])
    assert torch.equal(one["accuracy"], other["accuracy"])


def test_the_iterate_with_the_fewest_right_answers_counts_and_nothing_is_broken() -> None:
    state = state_of(torch.zeros(4, dtype=torch.float64))
    setting, logits = Setting(list("abcd"), Randomness(0, "pgd")), torch.zeros(4, 2, dtype=torch.float64)
    for number, (accuracy, objective) in enumerate(
        [
            ([0.5, 0.5, 0.5, 1.0], [1.0, 1.0, 1.0, 1.0]),
            ([0.4, 0.6, 0.5, 1.0], [0.0, 9.0, 2.0, 0.5]),
            ([0.4, 0.7, 0.5, 0.0], [0.0, 9.0, 1.5, -7.0]),
        ],
        start=1,
    ):
        state["adversarial"] = torch.full_like(state["images"], number)
        state["accuracy"] = torch.tensor(accuracy, dtype=torch.float64)
        record(setting, state, logits, torch.tensor(objective, dtype=torch.float64))
    assert state["best"].flatten().tolist() == [2, 1, 2, 3]
    assert state["lowest"].tolist() == [0.4, 0.5, 0.5, 0.0]
    assert not state["broken"].any()


def test_iterates_without_an_objective_are_below_all_others() -> None:
    half, nan = torch.tensor([0.5]), torch.tensor([torch.nan])
    assert lower(half, nan, nan, nan).all()
    assert lower(half, torch.tensor([0.0]), half, nan).all()
    assert not lower(half, torch.tensor([0.0]), half, torch.tensor([0.0])).any()


def test_the_share_of_right_passes() -> None:
    drawn = torch.tensor([[[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [torch.nan, 0.0]], [[1.0, 1.0], [0.0, 0.0]]])
    assert share_right(drawn, torch.tensor([0, 0])).tolist() == [2 / 3, 2 / 3]


def test_a_single_pass_is_never_an_expected_accuracy() -> None:
    assert not Expectation(1, judgement="expected").expected
    assert Expectation(2).expected
    assert not Expectation(2, judgement="single_draw").expected


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"eot": 0}, "eot is 0, it must be at least 1"),
        ({"eot": 2, "model_draws": 0}, "model_draws is 0, it must be at least 1"),
        ({"eot": 2, "eot_average": "loss"}, "eot_average is 'loss', allowed are losses, logits"),
        ({"eot": 2, "judgement": "mean"}, "judgement is 'mean', allowed are expected, single_draw"),
        ({"eot": 2, "backend": "compatible"}, "judgement expected needs backend native, not compatible"),
    ],
)
def test_what_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        apgd_ce(**wrong)


def test_squares_of_a_library_are_not_averaged() -> None:
    with pytest.raises(ValueError, match="eot is 2, above 1 it needs backend 'native'"):
        square(eot=2, backend="compatible")
