"""Random search on a linear model: proposals that raise the margin are kept, all others leave no trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from assay.attacks.adversarial.kernels.random_search import RandomSearch, check_budget
from assay.attacks.kernel import Examples, Setting, State
from assay.attacks.randomness import Randomness

LABEL = torch.zeros(1, dtype=torch.int64)
SETTING = Setting(["only"], Randomness(0, "scripted"), box=None)


@dataclass(frozen=True)
class Scripted(RandomSearch):
    """Proposes given values, each of them the whole image; `place` numbers the proposals."""

    values: tuple[float, ...] = ()
    KEPT: ClassVar[tuple[str, ...]] = ("place",)
    name: ClassVar[str] = "scripted"

    def _nothing(self, examples: Examples) -> State:
        return {"place": torch.full((len(examples.rows), 1), -1)}

    def _propose(self, setting: Setting, state: State) -> None:
        query = int(state["iteration"][0])
        state["adversarial"] = torch.full_like(state["images"], self.values[query])
        state["proposed_place"] = torch.full_like(state["place"], query)


def model(images: Tensor) -> Tensor:
    """Logits 0 and the image's only value less 10: the margin of class 0 is that difference."""
    value = images.flatten(1)
    return torch.cat([torch.zeros_like(value), value - 10], dim=1)


def _copy(state: State) -> State:
    return {key: value.clone() for key, value in state.items()}


def search(*values: float) -> list[State]:
    """The states after the start and after each proposal."""
    attack = Scripted(queries=len(values), share=1.0, values=values)
    image = torch.zeros(1, 1, 1, 1)
    state = attack.start(SETTING, Examples(torch.arange(1), image, LABEL, LABEL, model(image)))
    states = [_copy(state)]
    for _ in values:
        attack.step(SETTING, model, state)
        states.append(_copy(state))
    return states


def test_it_starts_at_the_image_without_a_proposal() -> None:
    start = search(1.0)[0]
    assert start["adversarial"].item() == 0
    assert start["place"].item() == start["proposed_place"].item() == -1
    assert start["highest"].isnan().all()
    assert start["highest"].dtype == torch.float64
    assert start["forward"].item() == 0


def test_a_proposal_is_kept_where_the_margin_rises() -> None:
    states = search(3.0, 2.0, 3.0, 5.0)
    # The first is kept in any case, a lower and an equal margin are not.
    assert [state["place"].item() for state in states[1:]] == [0, 0, 0, 3]
    assert [state["highest"].item() for state in states[1:]] == [-7, -7, -7, -5]
    assert states[-1]["best"].item() == 5
    assert not states[-1]["broken"].item()


def test_the_first_proposal_is_kept_even_below_the_image() -> None:
    last = search(-4.0)[-1]
    assert last["place"].item() == 0
    assert last["highest"].item() == -14


def test_each_proposal_costs_one_pass_until_the_budget_is_used_up() -> None:
    states = search(1.0, 2.0, 3.0)
    assert [state["forward"].item() for state in states] == [0, 1, 2, 3]
    assert [state["done"].item() for state in states] == [False, False, False, True]
    assert states[-1]["backward"].item() == 0


def test_the_first_wrong_answer_breaks_the_slot_and_counts() -> None:
    last = search(9.0, 11.0, 12.0)[-1]
    assert last["broken"].item()
    assert last["best"].item() == 11
    assert last["forward"].item() == 2


def test_slots_are_kept_one_by_one() -> None:
    attack = Scripted(queries=2, share=1.0, values=(1.0, 2.0))

    def odd(images: Tensor) -> Tensor:
        """The second example's margin falls with the value."""
        return model(images * torch.tensor([1.0, -1.0])[:, None, None, None])

    images, labels = torch.zeros(2, 1, 1, 1), LABEL.expand(2)
    setting = Setting(["a", "b"], Randomness(0, "scripted"), box=None)
    state = attack.start(setting, Examples(torch.arange(2), images, labels, labels, model(images)))
    for _ in range(2):
        attack.step(setting, odd, state)
    assert state["place"].flatten().tolist() == [1, 0]
    assert state["highest"].tolist() == [-8, -11]
    assert state["best"].flatten().tolist() == [2, 1]


@pytest.mark.parametrize(
    ("queries", "query", "place"),
    [(10_000, 137, 137), (5_000, 137, 274), (100, 100, 10_000), (3, 1, 3_333), (20_000, 3, 1)],
)
def test_another_budget_has_the_published_schedule_in_proportion(
    queries: int, query: int, place: int
) -> None:
    assert Scripted(queries=queries, share=1.0).scaled(query) == place


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"queries": 0, "share": 0.5}, "queries is 0, it must be at least 1"),
        ({"queries": 5, "share": 0.5, "width": 0}, "width is 0, it must be at least 1"),
        ({"queries": 5, "share": 0.0}, "share is 0.0, it must be above 0 and at most 1"),
        ({"queries": 5, "share": 1.01}, "share is 1.01, it must be above 0 and at most 1"),
        ({"queries": 5, "share": float("nan")}, "share is nan"),
    ],
)
def test_budgets_out_of_range(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_budget(**given)


def test_the_smallest_budget_and_the_whole_image_are_allowed() -> None:
    check_budget(1, 1.0, width=1)
