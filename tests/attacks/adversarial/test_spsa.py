"""SPSA on functions whose gradient is known, and against cleverhans 4.0.0 with the same random numbers."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cleverhans.torch.attacks.spsa as library
import numpy as np
import pytest
import torch
from torch import Tensor, nn

import assay.attacks.adversarial.spsa as ours
from assay.attacks.adversarial.kernels.random_signs import random_signs, unpack
from assay.attacks.adversarial.libraries.cleverhans_spsa import CleverhansSpsa
from assay.attacks.adversarial.spsa import spsa
from assay.attacks.kernel import Setting
from assay.attacks.randomness import Randomness
from assay.attacks.threat import Box, sizes
from assay.workers.evaluation.engine.protocols import attack_paper, attack_pixel

VECTORS = Path(__file__).resolve().parents[2] / "vectors" / "attacks_cleverhans.npz"
ORDER = {"Linf": float("inf"), "L2": 2}
EPSILON = {"Linf": 0.15, "L2": 0.9}
# Adam divides by the size of the gradient: where that is near 0, its rounding (1e-7 / delta) shows.
TOLERANCE = {torch.float32: 2e-4, torch.float64: 1e-12}
SMALL: dict[str, Any] = {"steps": 12, "samples": 24, "learning_rate": 0.02}


@pytest.fixture(params=[torch.float32, torch.float64], ids=str)
def case(
    request: pytest.FixtureRequest, digits: tuple[Tensor, Tensor], network: nn.Module
) -> tuple[nn.Module, Tensor, Tensor]:
    images, labels = digits
    return copy.deepcopy(network).to(request.param), images[:40].to(request.param), labels[:40]


def bounds(box: Box | None) -> dict[str, float]:
    return {} if box is None else {"clip_min": box[0], "clip_max": box[1]}


def draws_of(images: Tensor, steps: int, samples: int) -> Iterator[Tensor]:
    """Our random numbers in the order in which the library asks for them."""
    ids = [f"digit-{row}" for row in range(len(images))]
    randomness, shape = Randomness(0, "spsa"), images.shape[1:]
    for row, identifier in enumerate(ids):
        yield randomness.uniform([identifier], tuple(shape), dtype=images.dtype)
        for step in range(steps):
            packed = random_signs(
                Setting(ids, randomness), torch.tensor([row]), torch.tensor([step]), samples, shape.numel()
            )
            yield 0.5 + 0.4 * unpack(packed, shape.numel(), images.dtype).view(-1, *shape)


def their_spsa(
    monkeypatch: pytest.MonkeyPatch, model: nn.Module, images: Tensor, labels: Tensor, **params: Any
) -> Tensor:
    """The library's result with our random numbers, the adversarial images."""
    draws = draws_of(images, params["nb_iter"], params["spsa_samples"])
    with monkeypatch.context() as patch:
        patch.setattr(torch, "rand_like", lambda like: next(draws))
        found: Tensor = library.spsa(model, images, y=labels, sanity_checks=False, **params)
    assert next(draws, None) is None, "all draws were used"
    return found.detach()


def repair(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mends issue 1249: the gradient is estimated at the perturbation, which Adam was given."""
    given: list[Tensor] = []
    adam, estimate = library.optim.Adam, library._compute_spsa_gradient

    def noting(parameters: list[Tensor], **options: Any) -> Any:
        given[:] = parameters
        return adam(parameters, **options)

    def mended(loss: Any, _: Tensor, **options: Any) -> Any:
        return estimate(loss, given[0], **options)

    monkeypatch.setattr(library.optim, "Adam", noting)
    monkeypatch.setattr(library, "_compute_spsa_gradient", mended)


@pytest.mark.sampled
@pytest.mark.parametrize("box", [(0.0, 1.0), None], ids=["pixel", "unclipped"])
@pytest.mark.parametrize("norm", ["Linf", "L2"])
@pytest.mark.parametrize("point", ["shifted", "true"])
def test_it_equals_the_library_with_the_same_random_numbers(
    case: Any, run: Any, monkeypatch: pytest.MonkeyPatch, point: Any, norm: Any, box: Box | None
) -> None:
    model, images, labels = case
    attack = spsa(epsilon=EPSILON[norm], norm=norm, gradient_point=point, **SMALL)
    state = run(attack, model, images, labels, box=box, final_iterate=True)
    if point == "true":
        repair(monkeypatch)
    theirs = their_spsa(
        monkeypatch,
        *(model, images, labels),
        eps=EPSILON[norm],
        nb_iter=SMALL["steps"],
        spsa_samples=SMALL["samples"],
        learning_rate=SMALL["learning_rate"],
        norm=ORDER[norm],
        **bounds(box),
    )
    torch.testing.assert_close(state["best"], theirs, rtol=0, atol=TOLERANCE[images.dtype])
    assert torch.equal(state["rank"] > 0, model(theirs).argmax(1) != labels)
    assert 0 < int((state["rank"] > 0).sum()) < len(labels), "an epsilon that breaks some and not all"


@pytest.mark.costly
def test_targeted_equals_the_library(case: Any, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, images, labels = case
    attack = spsa(epsilon=0.2, gradient_point="shifted", targeted=True, target="next", **SMALL)
    state = run(attack, model, images, labels, final_iterate=True)
    theirs = their_spsa(
        monkeypatch,
        *(model, images, (labels + 1) % 10),
        eps=0.2,
        nb_iter=SMALL["steps"],
        spsa_samples=SMALL["samples"],
        learning_rate=SMALL["learning_rate"],
        targeted=True,
        **bounds((0.0, 1.0)),
    )
    torch.testing.assert_close(state["best"], theirs, rtol=0, atol=TOLERANCE[images.dtype])


@pytest.mark.costly
@pytest.mark.parametrize("norm", ["Linf", "L2"])
def test_the_library_as_a_backend_does_the_same(
    norm: Any, digits: tuple[Tensor, Tensor], network: nn.Module, run: Any
) -> None:
    model, images, labels = copy.deepcopy(network).double(), digits[0][:30].double(), digits[1][:30]
    states = [
        run(
            spsa(epsilon=EPSILON[norm], norm=norm, gradient_point="shifted", backend=backend, **SMALL),
            *(model, images, labels),
            box=None,
            final_iterate=True,
        )
        for backend in ("native", "cleverhans")
    ]
    torch.testing.assert_close(states[0]["best"], states[1]["best"], rtol=0, atol=1e-10)
    for key in ("prediction", "rank", "backward"):
        assert torch.equal(states[0][key], states[1][key])
    passes = SMALL["steps"] * 2 * SMALL["samples"]
    assert (states[0]["forward"] == passes + 1).all()
    assert (states[1]["forward"] == passes + SMALL["steps"] + 1).all()


@pytest.fixture(scope="module")
def stored() -> tuple[dict[str, Tensor], nn.Module]:
    with np.load(VECTORS) as file:
        vectors = {key: torch.from_numpy(np.asarray(file[key])) for key in file.files}
    model = nn.Sequential(nn.Flatten(), nn.Linear(108, 16), nn.Tanh(), nn.Linear(16, 5))
    names = {"1.weight": "fc1.weight", "1.bias": "fc1.bias", "3.weight": "fc2.weight", "3.bias": "fc2.bias"}
    model.load_state_dict({mine: vectors[f"w.{theirs}"] for mine, theirs in names.items()})
    return vectors, model


class StoredStart(Randomness):
    """Answers with the starts that a library run drew."""

    def __init__(self, starts: Tensor) -> None:
        super().__init__(0, "spsa")
        self.starts = starts

    def uniform(self, ids: Any, shape: tuple[int, ...], **_: Any) -> Tensor:
        return self.starts


def pack(signs: Tensor) -> Tensor:
    """Bits of signs, as `unpack` reads them."""
    bits = nn.functional.pad((signs > 0).to(torch.uint8), (0, -signs.shape[-1] % 8))
    return (bits.unflatten(-1, (-1, 8)) * 2 ** torch.arange(8)).sum(-1).to(torch.uint8)


def test_the_stored_output_of_a_seeded_run_is_reproduced(
    stored: Any, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors, model = stored
    images, labels = vectors["x"][:2], vectors["y_pred"][:2]
    steps, epsilon = int(vectors["spsa_nb_iter"]), float(vectors["spsa_eps"])
    torch.manual_seed(int(vectors["spsa_seed"]))
    # The library's stream: for each image its start, then the directions of each step.
    drawn = [
        (torch.rand_like(images[:1]), [torch.rand(128, *images.shape[1:]) for _ in range(steps)])
        for _ in images
    ]

    def theirs(setting: Setting, rows: Tensor, taken: Tensor, *_: Any) -> Tensor:
        places = zip(rows.tolist(), taken.tolist(), strict=True)
        return torch.stack([pack((drawn[row][1][step] - 0.5).flatten(1)) for row, step in places])

    monkeypatch.setattr(ours, "random_signs", theirs)
    start = StoredStart(torch.cat([first for first, _ in drawn]))
    attack = spsa(epsilon=epsilon, steps=steps, gradient_point="shifted")
    state = run(attack, model, images, labels, box=None, final_iterate=True, randomness=start)
    torch.testing.assert_close(state["best"], vectors["spsa2"], rtol=0, atol=1e-5)


def linear_model(weights: Tensor) -> nn.Module:
    class Linear(nn.Module):
        def forward(self, points: Tensor) -> Tensor:
            score = points.flatten(1) @ weights
            return torch.stack([score, -score], 1)

    return Linear()


def estimate(attack: Any, model: nn.Module, points: Tensor, goal: Tensor) -> Tensor:
    setting = Setting([str(row) for row in range(len(points))], Randomness(0, "spsa"))
    rows = torch.arange(len(points))
    found: Tensor = attack._estimate(setting, model, points, goal, rows, torch.zeros_like(rows))
    return found


def test_on_a_linear_model_the_estimate_is_the_gradient_in_expectation() -> None:
    weights = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
    points = torch.rand(1, 1, 2, 2, dtype=torch.float64)
    attack = spsa(samples=40_000, delta=0.1)
    found = estimate(attack, linear_model(weights), points, torch.tensor([0])).flatten()
    # The margin is -2 w x. One direction's estimate of an entry is off by the sum of the others: variance
    # below 4 |w|^2 = 57, so 40 000 give 0.04.
    torch.testing.assert_close(found, -2 * weights, rtol=0, atol=0.15)


def test_on_a_linear_model_it_goes_to_the_corner_of_the_ball(run: Any) -> None:
    weights = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
    images = torch.full((1, 1, 2, 2), 0.5, dtype=torch.float64)
    attack = spsa(epsilon=0.05, steps=30, samples=400)
    state = run(attack, linear_model(weights), images, torch.tensor([0]))
    torch.testing.assert_close(state["best"].flatten(), 0.5 - 0.05 * weights.sign(), rtol=0, atol=1e-12)


class Valley(nn.Module):
    """Class 0 while the image is away from 0.6: the gradient at 0.5 points up, at 2 * 0.5 it points down."""

    def forward(self, points: Tensor) -> Tensor:
        distance = (points - 0.6).square().flatten(1).mean(1)
        return torch.stack([distance - 0.004, -distance + 0.004], 1)


@pytest.mark.parametrize(("point", "broken"), [("true", True), ("shifted", False)])
def test_only_the_true_point_leads_there(run: Any, point: Any, broken: bool) -> None:
    images = torch.full((3, 1, 4, 4), 0.5, dtype=torch.float64)
    attack = spsa(epsilon=0.05, steps=25, samples=64, gradient_point=point)
    state = run(attack, Valley(), images, torch.zeros(3).long())
    assert (state["broken"] == broken).all()
    # Broken slots move on here; nearly all of the ball's 0.05 in every entry, one way or the other.
    moved = state["adversarial"].mean((1, 2, 3)) - 0.5
    assert (moved > 0.04 if broken else moved < -0.04).all()


def test_an_example_leaves_at_its_first_misclassified_iterate(
    digits: tuple[Tensor, Tensor], network: nn.Module, run: Any
) -> None:
    images, labels = digits[0][:60], digits[1][:60]
    attack = spsa(epsilon=0.3, **SMALL)
    state = run(attack, network, images, labels)
    final = run(attack, network, images, labels, final_iterate=True)
    broken, forward = state["broken"], state["forward"]
    per_step = 2 * SMALL["samples"] + 1
    assert 0 < int(broken.sum()) < len(labels)
    assert (forward[~broken] == SMALL["steps"] * per_step + 1).all()
    # Each count is the start's pass and whole steps.
    assert ((forward - 1) % per_step == 0).all()
    assert len(forward[broken].unique()) > 2
    assert torch.equal(network(state["best"]).argmax(1) != labels, broken)
    assert (final["forward"] == SMALL["steps"] * (per_step - 1) + 1).all()
    assert not final["broken"].any()
    assert (broken | (final["rank"] == 0)).all(), "what the final iterate breaks, some iterate breaks"


@pytest.mark.parametrize("samples_per_pass", [1, 7, 24, 100])
def test_samples_per_pass_bounds_the_rows_and_changes_only_rounding(
    digits: tuple[Tensor, Tensor], network: nn.Module, run: Any, samples_per_pass: int
) -> None:
    rows: list[int] = []

    class Counting(nn.Module):
        def forward(self, points: Tensor) -> Tensor:
            rows.append(len(points))
            logits: Tensor = model(points)
            return logits

    model = copy.deepcopy(network).double()
    images, labels = digits[0][:9].double(), digits[1][:9]
    attack = spsa(epsilon=0.15, steps=3, samples=24, samples_per_pass=samples_per_pass)
    state = run(attack, Counting(), images, labels)
    expected = run(spsa(epsilon=0.15, steps=3, samples=24), model, images, labels)
    torch.testing.assert_close(state["best"], expected["best"], rtol=0, atol=1e-10)
    assert max(rows) == max(len(images), 2 * samples_per_pass // 24 * 24, 2 * min(24, samples_per_pass))


@pytest.mark.costly
@pytest.mark.parametrize("backend", ["native", "cleverhans"])
@pytest.mark.parametrize("evaluation", [attack_pixel, attack_paper])
def test_batches_do_not_matter(
    backend: Any, evaluation: Any, digits: tuple[Tensor, Tensor], network: nn.Module
) -> None:
    class Normalized(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = copy.deepcopy(network).double()

        def normalize(self, pixels: Tensor) -> Tensor:
            return pixels

        def forward(self, pixels: Tensor) -> Tensor:
            logits: Tensor = self.backbone(pixels)
            return logits

    n = 30
    attack = spsa(epsilon=0.2, gradient_point="shifted", backend=backend, **SMALL)
    found = [
        evaluation(
            *(
                attack,
                Normalized(),
                lambda rows: digits[0][list(rows)],
                digits[1][:n],
                list(map(str, range(n))),
            ),
            randomness=Randomness(3, "spsa"),
            batch_size=size,
            dtype="float64",
            keep_adversarial=True,
        )
        for size in (1, 7, n)
    ]
    for other in found[1:]:
        torch.testing.assert_close(other.adversarial, found[0].adversarial, rtol=0, atol=1e-10)
        for column in ("prediction", "correct", "forward", "backward"):
            assert torch.equal(getattr(other, column), getattr(found[0], column)), column
    moved = sizes(found[0].adversarial - digits[0][:n].double(), "Linf")
    assert 0.1 < float(moved.max()) <= 0.2 + 1e-12
    assert 0 < int(found[0].correct.sum()) < n


def test_differences_that_are_not_finite_count_as_none(run: Any) -> None:
    class Holes(nn.Module):
        def forward(self, points: Tensor) -> Tensor:
            score = points.flatten(1).sum(1)
            # Unusable for the points of every other direction, about.
            return torch.stack([score, -score.where(points.flatten(1)[:, 0] < 0.5, torch.nan)], 1)

    images = torch.full((2, 1, 2, 2), 0.495, dtype=torch.float64)
    attack = spsa(epsilon=0.004, steps=5, samples=16, learning_rate=0.001)
    state = run(attack, Holes(), images, torch.zeros(2).long())
    assert state["adversarial"].isfinite().all()


def test_bad_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="samples \\(0\\)"):
        spsa(samples=0)
    with pytest.raises(ValueError, match="2x"):
        spsa(backend="cleverhans")
    assert isinstance(spsa(backend="cleverhans", gradient_point="shifted"), CleverhansSpsa)
