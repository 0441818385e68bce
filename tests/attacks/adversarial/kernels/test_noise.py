"""Noise: perturbations one by one, the first wrong answer counts, and draws that no batch changes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from assay.attacks.adversarial.kernels.noise import Noise, draw
from assay.attacks.kernel import Examples, Setting, State
from assay.attacks.randomness import Randomness
from assay.attacks.threat import PIXELS, Box

IDS = ["a", "b", "c"]


def model(images: Tensor) -> Tensor:
    """Class 1 wins where the mean value is above a half."""
    mean = images.flatten(1).mean(1)
    return torch.stack([torch.full_like(mean, 0.5), mean], dim=1)


def scripted(*values: float) -> Noise:
    """Adds the value of its draw's number to every pixel."""
    table = torch.tensor(values)

    def perturbation(setting: Setting, state: State) -> Tensor:
        return table[state["restart"]][:, None, None, None].expand_as(state["images"])

    return Noise("scripted", None, len(values), perturbation)


def run(attack: Noise, *, box: Box | None = PIXELS, final_iterate: bool = False) -> State:
    images, labels = torch.full((1, 1, 2, 2), 0.2), torch.zeros(1, dtype=torch.int64)
    setting = Setting(IDS[:1], Randomness(0, "noise"), box, final_iterate)
    state = attack.start(setting, Examples(torch.arange(1), images, labels, labels, model(images)))
    while not state["done"].all():
        attack.step(setting, model, state)
    return state


def test_the_draw_with_the_highest_loss_counts_where_none_is_wrong() -> None:
    state = run(scripted(0.1, 0.25, -0.1))
    assert not state["broken"].item()
    torch.testing.assert_close(state["best"], torch.full((1, 1, 2, 2), 0.45))
    # Cross-entropy at the logits (0.5, 0.45).
    torch.testing.assert_close(state["objective"], torch.tensor([1.0 / 20]).neg().exp().double().log1p())
    assert (state["forward"].item(), state["backward"].item()) == (3, 0)


def test_the_first_wrong_draw_counts_and_ends_the_count_of_passes() -> None:
    state = run(scripted(0.1, 0.4, 0.7))
    assert state["broken"].item()
    torch.testing.assert_close(state["best"], torch.full((1, 1, 2, 2), 0.6))
    assert state["forward"].item() == 2


@pytest.mark.parametrize(("box", "value"), [(PIXELS, 1.0), ((-1.0, 0.9), 0.9), (None, 5.2)])
def test_perturbed_images_are_clipped_to_the_box(box: Box | None, value: float) -> None:
    torch.testing.assert_close(run(scripted(5.0), box=box)["best"], torch.full((1, 1, 2, 2), value))


def test_no_draws_are_refused() -> None:
    with pytest.raises(ValueError, match="draws is 0, it must be at least 1"):
        Noise("scripted", None, 0, lambda setting, state: state["images"])


def state_of(rows: list[int], restarts: list[int], dtype: torch.dtype = torch.float32) -> State:
    images = torch.zeros(len(rows), 2, 3, 4, dtype=dtype)
    return {"row": torch.tensor(rows), "restart": torch.tensor(restarts), "images": images}


SETTING = Setting(IDS, Randomness(7, "noise"))


def test_draws_depend_on_example_and_number_alone() -> None:
    whole = draw(SETTING, state_of([0, 1, 2], [0, 0, 0]), "uniform")
    turned = draw(SETTING, state_of([2, 0], [0, 0]), "uniform")
    assert whole.shape == (3, 2, 3, 4)
    assert torch.equal(turned, whole[[2, 0]])
    later = draw(SETTING, state_of([0, 1], [1, 0]), "uniform")
    assert not torch.equal(later[0], whole[0])
    assert torch.equal(later[1], whole[1])


def test_purposes_and_seeds_keep_draws_apart() -> None:
    state = state_of([0], [0])
    first = draw(SETTING, state, "normal")
    assert torch.equal(first, draw(SETTING, state, "normal", purpose="start"))
    assert not torch.equal(first, draw(SETTING, state, "normal", purpose="radius"))
    assert not torch.equal(first, draw(Setting(IDS, Randomness(8, "noise")), state, "normal"))


def test_a_shape_of_its_own_is_the_shape_of_a_slot() -> None:
    state = state_of([0, 1], [0, 0], torch.float64)
    assert draw(SETTING, state, "uniform", ()).shape == (2,)
    wide = draw(SETTING, state, "uniform", (5000,))
    assert (wide.shape, wide.dtype) == ((2, 5000), torch.float64)


def test_the_laws() -> None:
    state = state_of([0], [0], torch.float64)
    uniform, normal = (draw(SETTING, state, law, (20_000,)) for law in ("uniform", "normal"))
    assert float(uniform.min()) >= 0
    assert float(uniform.max()) < 1
    # Five standard errors of the mean and of the variance of 20 000 draws.
    assert abs(float(uniform.mean()) - 1 / 2) < 5 * (1 / 12 / 20_000) ** 0.5
    assert abs(float(normal.mean())) < 5 * (1 / 20_000) ** 0.5
    assert abs(float(normal.var()) - 1) < 5 * (2 / 20_000) ** 0.5


def test_no_slots_take_no_draws() -> None:
    assert draw(SETTING, state_of([], []), "uniform").shape == (0, 2, 3, 4)
