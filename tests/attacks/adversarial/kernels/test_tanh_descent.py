"""The kernel of Carlini and Wagner's attack where the answer is known, and the rules of its searches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.attacks.adversarial.carlini_wagner import carlini_wagner
from assay.attacks.adversarial.kernels.tanh_descent import TanhDescent
from assay.attacks.adversarial.kernels.targeting import Goal
from assay.attacks.kernel import Attack, Examples, Setting, State, concatenate, frozen, judged, select
from assay.attacks.randomness import Randomness
from assay.attacks.threat import Box, sizes

# A case is one network, norm or size of one law: a sixteenth of them in each commit.
pytestmark = pytest.mark.sampled

Model = Callable[[Tensor], Tensor]
WEIGHTS = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
QUICK: dict[str, Any] = {"searches": 3, "iterations": 15, "learning_rate": 0.05}


class Linear(nn.Module):
    """Class 0 where the weighted sum of four pixels is above 1; logits (B, 3), the last far below."""

    def forward(self, points: Tensor) -> Tensor:
        score = points.flatten(1) @ WEIGHTS - 1
        return torch.stack([score / 2, -score / 2, score.detach() * 0 - 50], 1)


class Scripted(nn.Module):
    """Returns scripted logits call by call, for any images."""

    def __init__(self, answers: Sequence[Sequence[float]]) -> None:
        super().__init__()
        self.answers = iter(answers)

    def forward(self, points: Tensor) -> Tensor:
        logits = torch.tensor(next(self.answers), dtype=points.dtype).expand(len(points), -1)
        return logits + 0 * points.sum()


def four_pixels(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64).reshape(-1, 1, 1, 1).expand(-1, 1, 2, 2).clone()


def distances(state: State) -> Tensor:
    return sizes(state["best"] - state["images"], "L2")


def begun(attack: Attack, model: Model, images: Tensor, labels: Tensor, **setting: Any) -> Any:
    """Setting and state of one batch before the first step."""
    ids = [f"image-{row}" for row in range(len(images))]
    settings = Setting(ids, Randomness(0, attack.name), **setting)
    examples = Examples(torch.arange(len(images)), images, labels, labels, model(images))
    return settings, attack.start(settings, examples)


@pytest.mark.parametrize("search", ["released", "original"])
@pytest.mark.parametrize("confidence", [0.0, 0.3])
def test_finds_the_distance_to_a_plane(run: Any, search: Any, confidence: float) -> None:
    images, labels = four_pixels(0.5, 0.55, 0.6, 0.2), torch.tensor([0, 0, 0, 1])
    attack = carlini_wagner(
        searches=6, iterations=150, learning_rate=0.02, confidence=confidence, search=search
    )
    state = run(attack, Linear(), images, labels)
    # The logits differ by the score, whose slope is |w|.
    expected = ((images.flatten(1) @ WEIGHTS - 1).abs() + confidence) / WEIGHTS.norm()
    assert (state["prediction"] == 1 - labels).all()
    assert (distances(state) >= expected - 1e-12).all()
    torch.testing.assert_close(distances(state), expected, rtol=0.05, atol=0)
    torch.testing.assert_close(state["objective"], -distances(state).square(), rtol=1e-12, atol=0)
    margins = Linear()(state["best"])
    assert ((margins[:, 1] - margins[:, 0]).abs() >= confidence).all()
    if search == "released":
        assert state["forward"].tolist() == [900] * 4
        assert state["backward"].tolist() == [899] * 4


def test_slots_in_different_searches_do_not_touch_each_other(
    digits: tuple[Tensor, Tensor], network: nn.Module, run: Any
) -> None:
    images, labels = digits[0][:9].double(), digits[1][:9]
    model, attack = network.double(), carlini_wagner(**QUICK)
    try:
        whole = run(attack, model, images, labels)
        setting, state = begun(attack, model, images, labels)
        late = select(state, torch.arange(5, 9))
        early = select(state, torch.arange(5))
        with torch.no_grad(), frozen(model):
            for _ in range(22):
                attack.step(setting, model, early)
            both = concatenate([early, late])
            for _ in range(23):
                attack.step(setting, model, both)
            assert both["done"].tolist() == [True] * 5 + [False] * 4
            early, late = select(both, both["done"]), select(both, ~both["done"])
            while not late["done"].all():
                attack.step(setting, model, late)
    finally:
        network.float()
    apart = judged(concatenate([early, late]))
    for key in ("prediction", "forward", "backward", "constant", "restart"):
        assert torch.equal(apart[key], whole[key]), key
    torch.testing.assert_close(apart["best"], whole["best"], rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("search", "outcomes", "constants"),
    [
        ("released", "----", [1, 10, 100, 1000]),
        ("original", "----", [1, 10, 100, 1000]),
        ("released", "++++", [1, 0.5, 0.25, 0.125]),
        ("original", "++++", [1, 0.5, 0.25, 0.125]),
        # The library's bounds are views of the constant: it stays from the first change on.
        ("released", "-+-+", [1, 10, 10, 10]),
        ("released", "+-+-", [1, 0.5, 0.5, 0.5]),
        ("original", "-+-+", [1, 10, 5.5, 7.75]),
        ("original", "+-+-", [1, 0.5, 0.75, 0.625]),
    ],
)
def test_the_constants_of_the_searches(search: Any, outcomes: str, constants: list[float]) -> None:
    answers = [[0.0, 1.0] if outcome == "+" else [1.0, 0.0] for outcome in outcomes]
    model = Scripted([[1.0, 0.0], *answers])
    attack = carlini_wagner(searches=5, iterations=1, initial_constant=1, search=search)
    setting, state = begun(attack, model, four_pixels(0.4), torch.tensor([0]))
    tried = []
    with torch.no_grad():
        for _ in outcomes:
            tried.append(state["constant"].item())
            attack.step(setting, model, state)
    assert tried == pytest.approx(constants, rel=1e-12)


@pytest.mark.parametrize("search", ["released", "original"])
def test_what_a_search_leaves_to_the_next(search: Any) -> None:
    attack = carlini_wagner(searches=2, iterations=4, search=search)
    setting, state = begun(attack, Linear(), four_pixels(0.6), torch.tensor([0]))
    first = state["adversarial"]
    with torch.no_grad():
        for _ in range(4):
            attack.step(setting, Linear(), state)
    assert state["restart"].tolist() == [1]
    assert torch.equal(state["adversarial"], first) == (search == "original")
    assert bool((state["moment"] == 0).all()) == (search == "original")
    assert state["updates"].item() == (0 if search == "original" else 4)


@pytest.mark.parametrize("targeted", [False, True])
@pytest.mark.parametrize("confidence", [0.0, 1.0, 2.0])
def test_success_at_equal_logits_is_that_of_argmax(targeted: bool, confidence: float) -> None:
    torch.manual_seed(0)
    logits = torch.randint(-3, 4, (400, 4)).double()
    goal = torch.randint(0, 4, (400,))
    attack: Any = carlini_wagner(targeted=targeted, confidence=confidence)
    changed = logits.clone()
    changed[torch.arange(400), goal] += -confidence if targeted else confidence
    # numpy documents that the first of several maxima wins.
    top = torch.from_numpy(changed.numpy().argmax(1))
    expected = top == goal if targeted else top != goal
    assert torch.equal(attack._succeeds(logits, goal), expected)
    assert 10 < int(expected.sum()) < 390


def test_of_a_targeted_search_nothing_but_the_target_counts() -> None:
    # Class 1 is reached, class 2 is the target.
    model = Scripted([[1.0, 0.0, -9.0], [0.0, 1.0, -9.0], [0.0, 1.0, -9.0], [1.0, 0.0, -9.0]])
    attack = carlini_wagner(searches=1, iterations=3, targeted=True, target_class=2)
    setting, state = begun(attack, model, four_pixels(0.4), torch.tensor([0]))
    with torch.no_grad():
        for _ in range(3):
            attack.step(setting, model, state)
    assert state["objective"].item() == -torch.inf


def test_logits_that_are_nan_count_as_wrong_and_poison_nothing(run: Any) -> None:
    class Brittle(nn.Module):
        """NaN where the first pixel is a little brighter than in the first image."""

        def forward(self, points: Tensor) -> Tensor:
            first = points.flatten(1)[:, :1]
            return Linear()(points).masked_fill((first > 0.31) & (first < 0.5), torch.nan)

    state = run(carlini_wagner(**QUICK), Brittle(), four_pixels(0.3, 0.8), torch.tensor([1, 0]))
    assert state["nonfinite"].tolist() == [True, False]
    assert state["prediction"].tolist() == [-1, 1]
    assert state["adversarial"].isfinite().all()


@pytest.mark.parametrize(
    "params",
    [
        {"epsilon": 0.5},
        {"search": "original", "targeted": True, "abort_early": False},
    ],
    ids=str,
)
def test_no_step_asks_the_device(params: dict[str, Any]) -> None:
    """Tensors on the device `meta` have no values: whoever asks for one, fails."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).to("meta")
    images, labels = torch.empty(2, 1, 2, 2, device="meta"), torch.empty(2, dtype=torch.int64, device="meta")
    attack = carlini_wagner(**(QUICK | params))
    with torch.no_grad():
        setting, state = begun(attack, model, images, labels)
        while not state["done"].all():
            attack.step(setting, model, state)
    assert state["restart"].tolist() == [3, 3]


def test_a_shared_constant_needs_fixed_batches() -> None:
    attack = carlini_wagner(shared_constant=True)
    with pytest.raises(ValueError, match="paper"):
        begun(attack, Linear(), four_pixels(0.4), torch.tensor([1]))
    begun(attack, Linear(), four_pixels(0.4), torch.tensor([1]), final_iterate=True)


def descent(**parameters: Any) -> TanhDescent:
    usual = {
        "goal": Goal(),
        "confidence": 0.0,
        "searches": 1,
        "iterations": 20,
        "learning_rate": 0.02,
        "initial_constant": 3.0,
    }
    return TanhDescent("carlini_wagner", **(usual | parameters))


@pytest.mark.parametrize("confidence", [0.0, 0.4])
@pytest.mark.parametrize("box", [(0.0, 1.0), (-1.0, 3.0)])
def test_iterates_are_adams_on_the_papers_loss(confidence: float, box: Box) -> None:
    """Against torch's Adam and autograd's gradient of |x - x0|^2 + c max(Z_y - max Z_i + confidence, 0)."""
    low, high = box
    images = four_pixels(0.6)
    attack = descent(confidence=confidence)
    setting, state = begun(attack, Linear(), images, torch.tensor([0]), box=box)
    offset = torch.arctanh(0.999999 * (2 * (images - low) / (high - low) - 1))
    modifier = torch.zeros_like(images, requires_grad=True)
    optimizer = torch.optim.Adam([modifier], lr=0.02, eps=1e-8)
    for _ in range(19):
        x = low + (high - low) * (torch.tanh(modifier + offset) + 1) / 2
        torch.testing.assert_close(state["adversarial"], x.detach(), rtol=1e-12, atol=1e-12)
        logits = Linear()(x)
        hinge = (logits[:, 0] - logits[:, 1] + confidence).clamp(min=0)
        loss = (x - images).square().sum() + 3.0 * hinge.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            attack.step(setting, Linear(), state)
    assert float((state["adversarial"] - images).abs().max()) > 0.1, "else this tests nothing"


def test_images_outside_the_box_are_clamped_to_it_first() -> None:
    images = four_pixels(-0.5, 1.5, 0.25)
    _, state = begun(descent(), Linear(), images, torch.tensor([0, 0, 0]))
    assert torch.equal(state["images"], images.clamp(0, 1))
    # 0.999999 of the way to the edges of (-1, 1): half a millionth of the box.
    torch.testing.assert_close(state["adversarial"], images.clamp(0, 1), rtol=0, atol=5.001e-7)
    assert (state["adversarial"] > 0).all()
    assert (state["adversarial"] < 1).all()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"search": "binary"}, "search is 'binary', allowed are released, original"),
        ({"searches": 0}, r"searches \(0\) and iterations \(20\) must be at least 1"),
        ({"confidence": float("nan")}, "confidence is nan, it must be at least 0"),
        ({"epsilon": -0.1}, "epsilon is -0.1, it must be at least 0"),
    ],
)
def test_bad_values(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        descent(**parameters)
