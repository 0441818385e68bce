"""Auto-PGD in L1 on a linear model, where the best point is known, and its rules step by step."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.attacks.adversarial.kernels.auto_pgd_l1 import AutoPGDL1, parts
from assay.attacks.adversarial.kernels.losses import Untargeted
from assay.attacks.kernel import Setting
from assay.attacks.randomness import LibraryStream, Randomness
from assay.attacks.threat import L1Ball, sizes
from tests.support.linear_models import LinearModel

ENTRIES = 12
WEIGHTS = torch.linspace(-1, 2, ENTRIES, dtype=torch.float64)
LABELS = torch.zeros(1, dtype=torch.int64)
Linear = partial(LinearModel, WEIGHTS)


def attack(epsilon: float = 0.5, steps: int = 50, restarts: int = 1, backend: str = "native") -> AutoPGDL1:
    return AutoPGDL1("apgd_ce", L1Ball(epsilon), Untargeted("ce"), steps, restarts, backend=backend)


def flat_image(value: float) -> Tensor:
    return torch.full((1, 1, 3, 4), value, dtype=torch.float64)


@pytest.mark.parametrize(
    ("steps", "expected"), [(100, (30, 30, 40)), (5, (2, 2, 1)), (10, (3, 3, 4)), (7, (3, 3, 1))]
)
def test_parts_of_a_run(steps: int, expected: tuple[int, ...]) -> None:
    assert parts(steps) == expected
    assert sum(parts(steps)) == steps


def test_it_comes_to_the_best_point_of_the_ball(run: Any) -> None:
    """The best point changes the entry of the largest weight by epsilon; a tenth is what the search lacks."""
    image = flat_image(0.3)
    state = run(attack(), Linear(), image, LABELS)
    change = (state["best"] - image).flatten()
    assert float(sizes(change[None], "L1")) <= 0.5 * (1 + 1e-9)
    assert float(change @ WEIGHTS) > 0.9 * 0.5 * float(WEIGHTS.abs().max())


def test_it_comes_to_the_best_point_of_the_ball_in_the_box(run: Any) -> None:
    """Of 0.25 the largest weight's entry takes 0.1, up to 1; the next entries take the rest in order."""
    image = flat_image(0.9)
    state = run(attack(epsilon=0.25, steps=100), Linear(30.0), image, LABELS)
    assert float(state["best"].max()) <= 1
    best = 0.1 * (WEIGHTS[-1] + WEIGHTS[-2]) + 0.05 * WEIGHTS[-3]
    assert float((state["best"] - image).flatten() @ WEIGHTS) > 0.95 * float(best)


def test_iterates_shrink_from_three_times_the_radius(run: Any) -> None:
    model, image = Linear(), flat_image(0.5)
    state = run(attack(steps=20), model, image, LABELS, box=None)
    # Each part evaluates its first point and the point after each of its steps.
    lengths = [float(sizes(seen - image, "L1")) for seen in model.seen[1:]]
    assert len(lengths) == 20 + 3
    ends = [6 + 1, 6 + 1, 8 + 1]
    for radius, part in zip((1.5, 1.0, 0.5), torch.tensor(lengths).split(ends), strict=True):
        assert float(part.max()) <= radius * (1 + 1e-9)
        assert float(part.max()) > radius * 0.99
    assert (state["forward"].item(), state["backward"].item()) == (23, 20)


def test_only_iterates_of_the_last_part_count(run: Any) -> None:
    """The boundary is at 1.6 of the radius, which the first two parts cross."""
    offset = float(0.5 * WEIGHTS.sum() + 1.6 * 0.5 * WEIGHTS.max())
    model = Linear(offset)
    state = run(attack(), model, flat_image(0.5), LABELS, box=None)
    crossed = torch.stack([Linear(offset)(seen)[0, 1] > 0 for seen in model.seen])
    assert crossed.any()
    assert not state["broken"].item()
    assert float(sizes(state["best"] - flat_image(0.5), "L1")) <= 0.5 * (1 + 1e-9)


def test_restarts_have_runs_of_their_own(run: Any) -> None:
    model = Linear()
    state = run(attack(steps=5, restarts=2), model, flat_image(0.5), LABELS)
    assert (state["forward"].item(), state["backward"].item()) == (2 * 8, 2 * 5)
    assert not torch.equal(model.seen[1], model.seen[1 + 8])


def test_each_step_moves_along_the_signs_of_the_largest_entries() -> None:
    state = {
        "images": flat_image(0.5),
        "adversarial": flat_image(0.5),
        "share": torch.tensor([0.25], dtype=torch.float64),
        "step_size": torch.tensor([0.3], dtype=torch.float64),
        "part": torch.tensor([2]),
        "iteration": torch.tensor([4]),
    }
    gradient = torch.zeros(ENTRIES, dtype=torch.float64)
    gradient[[0, 3, 5, 7]] = torch.tensor([5.0, -7.0, 6.0, 1.0], dtype=torch.float64)
    setting = Setting(["a"], Randomness(0, "apgd_ce"))
    attack()._ascend(setting, state, gradient.view(1, 1, 3, 4), torch.tensor([True]))
    change = (state["adversarial"] - 0.5).flatten()
    # A quarter of 12 entries: three, each a third of the step.
    expected = torch.zeros(ENTRIES, dtype=torch.float64)
    expected[[0, 3, 5]] = torch.tensor([0.1, -0.1, 0.1], dtype=torch.float64)
    torch.testing.assert_close(change, expected)
    assert state["iteration"].item() == 5


@pytest.mark.parametrize(
    ("before", "step_size", "expected", "back"),
    [
        (12, 0.4, 0.5, True),  # 11 of 12 entries are fewer than 95 %: the radius again, from the best point
        (11, 0.45, 0.3, False),  # as many as before: divided by 1.5
        (11, 0.06, 0.05, False),  # never below a tenth of the radius
    ],
)
def test_checkpoints_adapt_step_and_sparsity(
    before: int, step_size: float, expected: float, back: bool
) -> None:
    best = flat_image(0.5)
    best.flatten()[:11] += 0.01
    state = {
        "images": flat_image(0.5),
        "adversarial": flat_image(0.7),
        "run_best": best,
        "run_gradient": torch.ones_like(best),
        "changed": torch.tensor([float(before)], dtype=torch.float64),
        "share": torch.tensor([0.9], dtype=torch.float64),
        "step_size": torch.tensor([step_size], dtype=torch.float64),
        "part": torch.tensor([2]),
        "iteration": torch.tensor([4]),
    }
    gradient = attack(steps=250)._adapt(state, torch.zeros_like(best))  # of 100 steps every fourth is due
    torch.testing.assert_close(state["step_size"], torch.tensor([expected], dtype=torch.float64))
    assert state["changed"].item() == 11
    assert state["share"].item() == pytest.approx(11 / 12 / 1.5)
    assert torch.equal(state["adversarial"], best if back else flat_image(0.7))
    assert torch.equal(gradient, torch.full_like(best, float(back)))
    state["iteration"] += 1
    earlier = state["step_size"].clone()
    attack(steps=250)._adapt(state, gradient)
    assert torch.equal(state["step_size"], earlier), "between two checkpoints nothing changes"


def test_the_librarys_order_of_draws_skips_three_starts(run: Any) -> None:
    """Beside the start of a run the library draws a start in each of its parts, and does not use it."""
    model = Linear()
    source = LibraryStream(0)
    run(attack(steps=5, restarts=2, backend="compatible"), model, flat_image(0.5), LABELS, randomness=source)
    expected = LibraryStream(0)
    for _ in range(8):
        expected.normal(["digit-0"], (1, 3, 4))
    shape = (1, 3, 4)
    assert torch.equal(source.normal(["digit-0"], shape), expected.normal(["digit-0"], shape))


def test_too_few_steps_for_three_parts() -> None:
    with pytest.raises(ValueError, match="steps is 4, in L1 it must be at least 5"):
        attack(steps=4)
