"""Our Carlini and Wagner attack against cleverhans 4.0.0 itself, and against a stored output of it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cleverhans.torch.attacks.carlini_wagner_l2 import carlini_wagner_l2
from torch import Tensor, nn

from assay.attacks.adversarial.carlini_wagner import carlini_wagner
from assay.attacks.threat import PIXELS, Box

# A case is one network, norm or size of one law: a sixteenth of them in each commit.
pytestmark = pytest.mark.sampled

VECTORS = Path(__file__).resolve().parents[2] / "vectors" / "attacks_cleverhans.npz"
N = 14
PARAMS: dict[str, Any] = {"searches": 4, "iterations": 12, "learning_rate": 0.01, "initial_constant": 0.1}
# Few steps: some examples are found in the first search, some later, and some never.
CASES: dict[str, tuple[dict[str, Any], Box]] = {
    "untargeted": ({}, PIXELS),
    "confidence": ({"confidence": 0.5}, PIXELS),
    "targeted": ({"targeted": True, "target": "next", "confidence": 0.2, "learning_rate": 0.02}, PIXELS),
    "box": ({"iterations": 6, "learning_rate": 0.005}, (-0.5, 2.0)),
}


def library(model: nn.Module, images: Tensor, labels: Tensor, params: dict[str, Any], box: Box) -> Tensor:
    targeted = params.get("targeted", False)
    found: Tensor = carlini_wagner_l2(
        model,
        images,
        10,
        y=(labels + 1) % 10 if targeted else labels,
        targeted=targeted,
        lr=params["learning_rate"],
        confidence=params.get("confidence", 0),
        clip_min=box[0],
        clip_max=box[1],
        initial_const=params["initial_constant"],
        binary_search_steps=params["searches"],
        max_iterations=params["iterations"],
    )
    return found


@pytest.fixture
def case(digits: tuple[Tensor, Tensor], network: nn.Module) -> tuple[nn.Module, Tensor, Tensor]:
    model = copy.deepcopy(network).double().requires_grad_(False)
    return model, digits[0][:N].double(), digits[1][:N]


def assert_same(model: nn.Module, state: Any, theirs: Tensor) -> None:
    found = state["objective"].isfinite()
    torch.testing.assert_close(state["best"][found], theirs[found], rtol=0, atol=1e-10)
    # The library returns the image itself, we the first iterate.
    torch.testing.assert_close(state["best"][~found], theirs[~found], rtol=0, atol=2e-6)
    assert torch.equal(state["prediction"], model(theirs).argmax(1))
    assert 2 <= int(found.sum()) < N, "some are found and some are not"
    assert len(state["constant"].unique()) > 1, "the searches went different ways"


@pytest.mark.parametrize(("params", "box"), CASES.values(), ids=CASES)
def test_each_example_is_what_the_library_makes_of_it_alone(
    case: Any, run: Any, params: dict[str, Any], box: Box
) -> None:
    model, images, labels = case
    params = PARAMS | params
    state = run(carlini_wagner(**params), model, images, labels, box=box)
    pairs = zip(images.split(1), labels.split(1), strict=True)
    theirs = torch.cat([library(model, image, label, params, box) for image, label in pairs])
    assert_same(model, state, theirs)


@pytest.mark.parametrize(("params", "box"), CASES.values(), ids=CASES)
def test_with_a_shared_constant_a_batch_is_what_the_library_makes_of_it(
    case: Any, run: Any, params: dict[str, Any], box: Box
) -> None:
    model, images, labels = case
    params = PARAMS | params
    attack = carlini_wagner(shared_constant=True, **params)
    state = run(attack, model, images, labels, box=box, final_iterate=True)
    assert_same(model, state, library(model, images, labels, params, box))


@pytest.mark.parametrize("label", [0, 1])
def test_equal_logits_at_the_first_iterate(run: Any, label: int) -> None:
    """Grey is on the boundary: class 0 wins there, and the hinge has half of its slope."""

    class Boundary(nn.Module):
        def forward(self, points: Tensor) -> Tensor:
            score = points.flatten(1).sum(1) - 2
            return torch.stack([score, -score], 1)

    images, labels = torch.full((1, 1, 2, 2), 0.5, dtype=torch.float64), torch.tensor([label])
    params = {"searches": 1, "iterations": 3, "learning_rate": 1e-3}
    state = run(carlini_wagner(**params), Boundary(), images, labels)
    theirs = carlini_wagner_l2(
        Boundary(), images, 2, y=labels, lr=1e-3, binary_search_steps=1, max_iterations=3
    )
    torch.testing.assert_close(state["best"], theirs, rtol=0, atol=1e-15)
    assert torch.equal(state["best"], images) == (label == 1)


@pytest.mark.parametrize("params", [{}, {"epsilon": 0.45}, {"targeted": True, "target": "next"}], ids=str)
def test_the_library_as_a_backend_does_the_same(case: Any, run: Any, params: dict[str, Any]) -> None:
    model, images, labels = case
    params = PARAMS | {"learning_rate": 0.05} | params
    states = [
        run(carlini_wagner(backend=backend, **params), model, images, labels, final_iterate=True)
        for backend in ("native", "cleverhans")
    ]
    torch.testing.assert_close(states[0]["best"], states[1]["best"], rtol=0, atol=1e-6)
    for key in ("prediction", "rank", "zero_gradient", "seen_gradient"):
        assert torch.equal(states[0][key], states[1][key]), key
    assert (states[0]["rank"] > 0).any()
    assert states[0]["forward"].tolist() == [48] * N
    assert states[0]["backward"].tolist() == [47] * N
    assert states[1]["forward"].tolist() == [49] * N
    assert states[1]["backward"].tolist() == [48] * N


@pytest.fixture(scope="module")
def stored() -> tuple[dict[str, Any], nn.Module]:
    with np.load(VECTORS) as file:
        vectors = {key: torch.from_numpy(np.asarray(file[key])) for key in file.files}
    model = nn.Sequential(nn.Flatten(), nn.Linear(108, 16), nn.Tanh(), nn.Linear(16, 5))
    names = {"1.weight": "fc1.weight", "1.bias": "fc1.bias", "3.weight": "fc2.weight", "3.bias": "fc2.bias"}
    model.load_state_dict({ours: vectors[f"w.{theirs}"] for ours, theirs in names.items()})
    return vectors, model


@pytest.mark.parametrize("shared", [True, False])
def test_the_stored_output_is_reproduced(stored: Any, run: Any, shared: bool) -> None:
    """Normalised images in the library's default box: clamping alone breaks three of the four."""
    vectors, model = stored
    images, labels = vectors["x"], vectors["y_pred"]
    attack = carlini_wagner(
        iterations=int(vectors["cw_max_iterations"]), confidence=0.03, shared_constant=shared
    )
    state = run(attack, model, images, labels, box=None, final_iterate=True)
    # The fourth depends on the constants of the others there.
    same = 4 if shared else 3
    torch.testing.assert_close(state["best"][:same], vectors["cw"][:same], rtol=0, atol=3e-6)
    assert torch.equal(state["prediction"], model(vectors["cw"]).argmax(1))
    clamped = images.clamp(0, 1)
    assert (model(clamped).argmax(1) != labels).tolist() == [True, True, True, False]
    assert (clamped - images).abs().mean() > 50 * (state["best"] - clamped).abs().mean()
