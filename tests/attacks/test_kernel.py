from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from assay.attacks.expectation import Expectation
from assay.attacks.kernel import (
    Examples,
    Setting,
    begin,
    concatenate,
    frozen,
    judged,
    record,
    select,
    unconverged,
)
from assay.attacks.passes import evaluate
from assay.attacks.randomness import Randomness

WEIGHTS = torch.tensor([[1.0, -1.0], [-1.0, 1.0]])


def linear(points: Tensor) -> Tensor:
    return points.flatten(1) @ WEIGHTS.to(points.dtype)


def some_state(n: int, first_row: int = 0) -> dict[str, Tensor]:
    images = torch.rand(n, 1, 1, 2, generator=torch.Generator().manual_seed(first_row))
    labels = torch.zeros(n, dtype=torch.int64)
    rows = torch.arange(first_row, first_row + n)
    return begin(Examples(rows, images, labels, labels, linear(images)), labels, images.clone())


def first_logit(logits: Tensor) -> Tensor:
    return logits[:, 0]


def test_draws_are_like_the_images_and_keyed_by_the_examples_of_the_rows() -> None:
    setting, images = Setting(["a", "b", "c"], Randomness(3, "pgd")), torch.zeros(2, 1, 2, 3).double()
    uniform = setting.draw("uniform", torch.tensor([2, 0]), images, restart=[1, 4])
    assert uniform.dtype == torch.float64
    expected = Randomness(3, "pgd").uniform(["c", "a"], (1, 2, 3), restart=[1, 4], dtype=torch.float64)
    assert torch.equal(uniform, expected)
    normal = setting.draw("normal", torch.tensor([1]), images[:1].float(), restart=0, target=[5])
    assert torch.equal(normal, Randomness(3, "pgd").normal(["b"], (1, 2, 3), restart=0, target=[5]))


def test_states_concatenate_and_select() -> None:
    one, two = some_state(3), some_state(2, first_row=3)
    both = concatenate([one, two])
    assert both["row"].tolist() == [0, 1, 2, 3, 4]
    chosen = select(both, torch.tensor([4, 0]))
    assert chosen["row"].tolist() == [4, 0]
    assert torch.equal(chosen["images"], torch.cat([two["images"][1:], one["images"][:1]]))
    masked = select(both, torch.tensor([False, False, False, True, True]))
    torch.testing.assert_close(masked, two, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("wants", [[True] * 4, [False] * 4, [False, True, False, True]])
def test_gradients_only_where_wanted_and_passes_counted(wants: list[bool]) -> None:
    state, wanted = some_state(4), torch.tensor(wants)
    sizes: list[int] = []

    def model(points: Tensor) -> Tensor:
        sizes.append(len(points))
        return linear(points)

    with torch.no_grad():
        logits, values, gradient = evaluate(model, state, first_logit, wanted)
    torch.testing.assert_close(logits, linear(state["adversarial"]))
    torch.testing.assert_close(values, logits[:, 0].double())
    expected = torch.where(wanted[:, None], WEIGHTS[:, 0], 0.0).reshape(4, 1, 1, 2)
    assert torch.equal(gradient, expected)
    assert not logits.requires_grad
    assert sum(sizes) == 4
    assert state["forward"].tolist() == [1, 1, 1, 1]
    assert state["backward"].tolist() == [int(want) for want in wants]


def test_a_gradient_is_averaged_over_passes_and_the_last_one_answers() -> None:
    state, calls = some_state(3), []
    wanted = torch.tensor([True, False, True])

    def model(points: Tensor) -> Tensor:
        if points.requires_grad:
            calls.append(len(points))
        return linear(points) * len(calls)

    with torch.no_grad():
        logits, values, gradient = evaluate(model, state, first_logit, wanted, Expectation(3))
    assert calls == [2, 2, 2]
    assert torch.equal(logits[wanted], 3 * linear(state["adversarial"])[wanted])
    assert torch.equal(values, logits[:, 0].double())
    mean = (1 + 2 + 3) / 3 * WEIGHTS[:, 0].reshape(1, 1, 2)
    torch.testing.assert_close(gradient, torch.stack([mean, 0 * mean, mean]))
    assert state["forward"].tolist() == [3, 1, 3]
    assert state["backward"].tolist() == [3, 0, 3]


def test_the_first_gradient_is_noted_and_a_bad_one_counts_as_zero() -> None:
    state = some_state(3)
    scale = torch.tensor([1.0, 0.0, torch.nan])[:, None]

    def model(points: Tensor) -> Tensor:
        return linear(points) * scale if points.requires_grad else linear(points)

    wanted = torch.tensor([True, True, True])
    with torch.no_grad():
        _, _, gradient = evaluate(model, state, first_logit, wanted)
    assert gradient[2].tolist() == [[[0.0, 0.0]]]
    assert state["zero_gradient"].tolist() == [False, True, False]
    assert state["nonfinite_gradient"].tolist() == [False, False, True]
    scale = torch.zeros(3, 1)
    with torch.no_grad():
        evaluate(model, state, first_logit, wanted)
    assert state["zero_gradient"].tolist() == [False, True, False]


def test_the_first_misclassified_iterate_counts_else_the_one_with_the_highest_objective() -> None:
    setting, state = Setting(["a", "b"], Randomness(0, "test")), some_state(2)
    right, wrong = [1.0, 0.0], [0.0, 1.0]
    every = torch.tensor([True, True])
    history = [([right, right], [0.5, 0.5]), ([wrong, right], [0.4, 0.9]), ([wrong, right], [2.0, 0.7])]
    for number, (logits, values) in enumerate(history):
        state["adversarial"] = torch.full_like(state["images"], number)
        record(setting, state, torch.tensor(logits), torch.tensor(values).double(), every)
    assert state["broken"].tolist() == [True, False]
    assert state["best"][:, 0, 0, 0].tolist() == [1.0, 1.0]
    assert state["objective"].tolist() == pytest.approx([0.4, 0.9])
    assert judged(state)["prediction"].tolist() == [1, 0]


def test_only_final_iterates_count_in_the_paper_protocol() -> None:
    setting = Setting(["a", "b"], Randomness(0, "test"), box=None, final_iterate=True)
    state, wrong = some_state(2), torch.tensor([[0.0, 1.0]] * 2)
    record(setting, state, wrong, torch.tensor([1.0, 1.0]).double(), torch.tensor([False, True]))
    assert state["broken"].tolist() == [False, False]
    assert torch.equal(state["logits"], torch.stack([linear(state["images"])[0], wrong[1]]))
    assert judged(state)["rank"][1] == 1


def test_frozen_restores_modes_and_flags_even_after_an_error() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(), nn.BatchNorm1d(2))
    model.train()
    model[1].eval()
    model[0].bias.requires_grad_(False)
    modes = [module.training for module in model.modules()]
    flags = [parameter.requires_grad for parameter in model.parameters()]
    inside: list[bool] = []

    def fail() -> None:
        with frozen(model):
            inside.extend(module.training for module in model.modules())
            inside.extend(parameter.requires_grad for parameter in model.parameters())
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fail()
    assert not any(inside)
    assert [module.training for module in model.modules()] == modes
    assert [parameter.requires_grad for parameter in model.parameters()] == flags


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("before", "now", "rises"),
    [
        # Large ones by more than a twentieth, of either sign.
        (10.0, 10.49, False),
        (10.0, 10.51, True),
        (-10.0, -9.51, False),
        (-10.0, -9.49, True),
        # Small ones by more than a hundredth.
        (0.1, 0.109, False),
        (0.1, 0.111, True),
        (0.0, 0.009, False),
        (0.0, 0.011, True),
        (10.0, 5.0, False),
        (torch.nan, 5.0, False),
    ],
)
def test_unconverged_is_a_rise_of_more_than_a_twentieth_and_a_hundredth(
    before: float, now: float, rises: bool
) -> None:
    state = some_state(2) | {
        "plateau": torch.tensor([before] * 2, dtype=torch.float64),
        "objective": torch.tensor([now] * 2, dtype=torch.float64),
        "broken": torch.tensor([False, True]),
    }
    assert unconverged(state).tolist() == [rises, False]
    del state["plateau"]
    assert unconverged(state).tolist() == [False, False]
