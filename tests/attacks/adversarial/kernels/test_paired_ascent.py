"""Which pairs go on to another round: those near the boundary, and those that approach it fast enough."""

from __future__ import annotations

import pytest
import torch

from assay.attacks.adversarial.kernels.paired_ascent import CLOSE, FORECAST, LATER, PREFIX, PairedAscent
from assay.attacks.kernel import State
from assay.attacks.threat import Ball

CLEAN = -8.0
# Loss at the end and in the middle of the round, and whether another one may break the pair.
PAIRS = [
    (-1.0, -1.0, True),  # near, though it no longer moves
    (CLOSE * CLEAN, -2.0, True),
    (-4.0, -6.0, True),  # far, and as much again would reach the boundary
    (-4.0, -5.9, False),
    (-6.0, -9.0, True),
    (-4.0, -4.0, False),
]


def ended(now: list[float], half: list[float], number: int) -> State:
    """The state of slots of one example each, with these lanes in the round of this number."""
    lanes = torch.tensor([now])
    images = torch.zeros(1, 1, 1, 1)
    whole = {"run_best": images[:, None].expand(-1, len(now), -1, -1, -1)}
    for key in ("adversarial", "previous"):
        whole[key] = whole["run_best"].clone()
    for key in ("iteration", "done", "restart", "target", "fresh"):
        whole[key] = torch.ones(1, len(now), dtype=torch.int64)
    return {
        "images": images,
        "active": torch.ones(1, len(now), dtype=torch.bool),
        "round": torch.tensor([number]),
        "iteration": torch.tensor([5]),
        "done": torch.zeros(1, dtype=torch.bool),
        "halfway": torch.tensor([half]),
        "at_image": torch.full((1, len(now)), CLEAN),
        PREFIX + "run_loss": lanes,
        **{PREFIX + key: value for key, value in whole.items()},
    }


def next_round(now: list[float], half: list[float], number: int, rounds: int = 3) -> State:
    attack = PairedAscent("pairs", Ball("Linf", 0.1), len(now), 8, rounds, candidates=9, many=20)
    state = ended(now, half, number)
    attack._end_round(state, torch.tensor([True]))
    return state


@pytest.mark.parametrize("number", [1, LATER])
def test_lanes_near_the_boundary_and_lanes_that_approach_it_go_on(number: int) -> None:
    now, half, hopeful = map(list, zip(*PAIRS, strict=True))
    assert FORECAST == 2.0
    state = next_round(now, half, number)
    assert state["active"][0].tolist() == hopeful
    assert (state["round"].item(), state["iteration"].item(), state["done"].item()) == (number + 1, 0, False)


def test_a_slot_ends_where_no_lane_has_hope_or_no_round_is_left() -> None:
    assert next_round([-4.0, -7.0], [-4.0, -7.0], 1)["done"].item()
    last = 3 + LATER - 2
    assert not next_round([-1.0, -1.0], [-1.0, -1.0], last)["done"].item()
    assert next_round([-1.0, -1.0], [-1.0, -1.0], last + 1)["done"].item()


def test_the_first_round_is_followed_by_that_of_the_other_lanes() -> None:
    assert next_round([-1.0, -9.0, -9.0], [-1.0, -9.0, -9.0], 0)["active"].tolist() == [[False, True, True]]
