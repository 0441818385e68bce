"""Sparse descent against cleverhans 4.0.0 and its stored output, and where the result is known."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cleverhans.torch.attacks.sparse_l1_descent import sparse_l1_descent as their_descent
from torch import Tensor, nn

from assay.attacks.adversarial.sparse_l1_descent import sparse_l1_descent
from assay.attacks.randomness import Randomness
from assay.attacks.threat import Box, sizes
from assay.workers.evaluation.engine.protocols import attack_pixel

VECTORS = Path(__file__).resolve().parents[2] / "vectors" / "attacks_cleverhans.npz"
TOLERANCE = {torch.float32: 3e-6, torch.float64: 1e-12}
BOXES: dict[str, Box | None] = {"pixel": (0.0, 1.0), "unclipped": None}


@pytest.fixture(params=[torch.float32, torch.float64], ids=str)
def case(
    request: pytest.FixtureRequest,
    digits: tuple[Tensor, Tensor],
    network: nn.Module,
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[nn.Module, Tensor, Tensor]:
    """Model, images and labels in one dtype. The library casts to `torch.float`: let that be the dtype."""
    dtype = request.param
    monkeypatch.setattr(torch, "float", dtype)
    images, labels = digits
    return copy.deepcopy(network).to(dtype), images[:100].to(dtype), labels[:100]


@pytest.mark.sampled
@pytest.mark.parametrize("box", BOXES.values(), ids=BOXES)
@pytest.mark.parametrize(
    ("epsilon", "sparsity", "skip_clipped", "targeted"),
    [(2.5, 0.9, False, False), (2.5, 0.97, True, False), (6.0, 0.8, False, True), (1.5, 0.99, False, False)],
)
def test_it_equals_the_library(
    case: Any,
    run: Any,
    box: Box | None,
    epsilon: float,
    sparsity: float,
    skip_clipped: bool,
    targeted: bool,
) -> None:
    model, images, labels = case
    params: dict[str, Any] = {"epsilon": epsilon, "step_size": 0.4, "steps": 15, "sparsity": sparsity}
    attack = sparse_l1_descent(**params, skip_clipped=skip_clipped, targeted=targeted, target="next")
    state = run(attack, model, images, labels, box=box, final_iterate=True)
    theirs = their_descent(
        *(model, images, epsilon, 0.4, 15, (labels + 1) % 10 if targeted else labels, targeted),
        *((None, None) if box is None else box),
        clip_grad=skip_clipped and box is not None,
        grad_sparsity=100 * sparsity,
        sanity_checks=False,
    )
    torch.testing.assert_close(state["best"], theirs, rtol=0, atol=TOLERANCE[images.dtype])
    flags = [model(found).argmax(1) == labels for found in (state["best"], theirs)]
    assert torch.equal(*flags)
    assert 0 < int(flags[0].sum()) < len(labels), "an epsilon that breaks some and not all"
    assert sizes(theirs - images, "L1").max() <= epsilon + 1e-5


@pytest.mark.parametrize("box", BOXES.values(), ids=BOXES)
def test_the_library_as_a_backend_does_the_same(
    digits: tuple[Tensor, Tensor], network: nn.Module, run: Any, box: Box | None
) -> None:
    images, labels = digits[0][:100], digits[1][:100]
    states = [
        run(
            sparse_l1_descent(epsilon=4, step_size=0.5, sparsity=0.9, backend=backend),
            *(network, images, labels),
            box=box,
            final_iterate=True,
        )
        for backend in ("native", "cleverhans")
    ]
    torch.testing.assert_close(states[0]["best"], states[1]["best"], rtol=0, atol=1e-5)
    for key in ("prediction", "rank", "forward", "backward", "seen_gradient", "zero_gradient"):
        assert torch.equal(states[0][key], states[1][key]), key


def test_the_stored_output_is_reproduced(run: Any) -> None:
    with np.load(VECTORS) as file:
        vectors = {key: torch.from_numpy(np.asarray(file[key])) for key in file.files}
    model = nn.Sequential(nn.Flatten(), nn.Linear(108, 16), nn.Tanh(), nn.Linear(16, 5))
    names = {"1.weight": "fc1.weight", "1.bias": "fc1.bias", "3.weight": "fc2.weight", "3.bias": "fc2.bias"}
    model.load_state_dict({mine: vectors[f"w.{theirs}"] for mine, theirs in names.items()})
    for backend in ("native", "cleverhans"):
        state = run(
            sparse_l1_descent(backend=backend),  # type: ignore[arg-type]
            *(model, vectors["x"], vectors["y_pred"]),
            box=None,
            final_iterate=True,
        )
        torch.testing.assert_close(state["best"], vectors["sld"], rtol=0, atol=1e-6)
    assert sizes(vectors["sld"] - vectors["x"], "L1").min() > 9.9


class Linear(nn.Module):
    """Class 0 where the weighted sum is positive."""

    def __init__(self, weights: list[float]) -> None:
        super().__init__()
        self.weights = torch.tensor(weights, dtype=torch.float64)

    def forward(self, points: Tensor) -> Tensor:
        score = points.flatten(1) @ self.weights
        return torch.stack([score, -score], 1)


IMAGE = torch.full((1, 1, 2, 2), 0.5, dtype=torch.float64)


def test_on_a_linear_model_the_largest_entries_move_equally(run: Any) -> None:
    # Half of four entries stay: floor(0.5 * 4) = 2nd smallest and above move, three of them.
    attack = sparse_l1_descent(epsilon=0.3, step_size=0.1, steps=2, sparsity=0.5)
    state = run(attack, Linear([1, -2, 0.5, 3]), IMAGE, torch.tensor([0]), final_iterate=True)
    expected = torch.tensor([-1.0, 1.0, 0.0, -1.0], dtype=torch.float64) * 0.2 / 3
    torch.testing.assert_close((state["best"] - IMAGE).flatten(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("epsilon", "broken"), [(0.499, False), (0.501, True)])
def test_it_breaks_an_example_exactly_where_the_margin_ends(run: Any, epsilon: float, broken: bool) -> None:
    # The entries of weight 2 and 3 move, 2.5 on average; the score is 0.5 * 2.5.
    attack = sparse_l1_descent(epsilon=epsilon, step_size=0.05, steps=20, sparsity=0.99)
    state = run(attack, Linear([1, -2, 0.5, 3]), IMAGE, torch.tensor([0]), box=None)
    assert state["broken"].item() is broken


def test_entries_at_the_end_of_their_range_are_skipped_if_asked(run: Any) -> None:
    image = torch.tensor([0.5, 0.5, 0.5, 0.0], dtype=torch.float64).reshape(1, 1, 2, 2)

    def moved(label: int, skip: bool) -> list[float]:
        attack = sparse_l1_descent(epsilon=0.2, step_size=0.1, steps=2, sparsity=0.75, skip_clipped=skip)
        state = run(attack, Linear([1, -2, 0.5, 3]), image, torch.tensor([label]), final_iterate=True)
        found: list[float] = (state["best"] - image).flatten().sign().tolist()
        return found

    # Two entries at a time. The score is lowered: the one of weight 3 is at its lower end.
    assert moved(0, skip=False) == [0, 1, 0, 0]
    assert moved(0, skip=True) == [-1, 1, 0, 0]
    # The score is raised: it may move.
    assert moved(1, skip=False) == moved(1, skip=True) == [0, -1, 0, 1]


def test_the_random_start_is_random_and_in_the_ball(
    digits: tuple[Tensor, Tensor], network: nn.Module, run: Any
) -> None:
    images, labels = digits[0][:50], digits[1][:50]
    attack = sparse_l1_descent(epsilon=3, random_start=True, restarts=2, steps=1, step_size=1e-9)
    model = copy.deepcopy(network).double()
    states = [run(attack, model, images.double(), labels, seed=seed, box=None) for seed in (0, 0, 1)]
    moved = [state["best"] - images.double() for state in states]
    assert torch.equal(moved[0], moved[1])
    assert not torch.equal(moved[0], moved[2])
    for found in moved:
        radius = sizes(found, "L1")
        assert radius.max() <= 3 + 1e-6
        # In 64 dimensions nearly all of the ball is near its surface.
        assert radius.mean() > 2.9


@pytest.mark.costly
def test_restarts_break_more_and_batches_do_not_matter(
    digits: tuple[Tensor, Tensor], network: nn.Module
) -> None:
    n = 60

    def outcomes(batch_size: int, **params: Any) -> Any:
        return attack_pixel(
            sparse_l1_descent(epsilon=1.8, step_size=0.3, steps=3, sparsity=0.9, **params),
            copy.deepcopy(network).double(),
            lambda rows: digits[0][list(rows)],
            digits[1][:n],
            list(map(str, range(n))),
            randomness=Randomness(0, "sparse_l1_descent"),
            batch_size=batch_size,
            dtype="float64",
            keep_adversarial=True,
        )

    found = [outcomes(size, random_start=True, restarts=8) for size in (1, 7, n)]
    for other in found[1:]:
        torch.testing.assert_close(other.adversarial, found[0].adversarial, rtol=0, atol=1e-10)
        for column in ("prediction", "correct", "forward", "backward"):
            assert torch.equal(getattr(other, column), getattr(found[0], column)), column
    once = outcomes(n, random_start=True)
    assert not (found[2].correct & ~once.correct).any()
    assert int(found[2].correct.sum()) < int(once.correct.sum())


def test_bad_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="sparsity is 1"):
        sparse_l1_descent(sparsity=1)
    with pytest.raises(ValueError, match="no effect"):
        sparse_l1_descent(random_start=True, backend="cleverhans")
    with pytest.raises(ValueError, match="steps \\(0\\)"):
        sparse_l1_descent(steps=0)
