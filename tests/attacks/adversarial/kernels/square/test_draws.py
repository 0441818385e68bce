"""The Square Attack's draws: by example in blocks that no batch changes, or in the order of the library."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from assay.attacks.adversarial.kernels.square.draws import BLOCK, Keyed, Streamed
from assay.attacks.kernel import Setting, State
from assay.attacks.randomness import LibraryStream, Randomness

IDS = ["a", "b", "c"]
WIDTH = 4
KEYED = Setting(IDS, Randomness(3, "square"))


def drawn(draws: Tensor, query: Tensor) -> Tensor:
    """A plan that shows its draws, and the number of its query."""
    return torch.cat([draws, query[..., None].expand(len(draws), -1, 1).to(draws)], dim=2)


def state_of(rows: list[int], restart: int = 0) -> State:
    state = Keyed().state(len(rows), WIDTH + 1, torch.device("cpu"))
    images = torch.zeros(len(rows), 1, 2, 2)
    return state | {
        "row": torch.tensor(rows),
        "restart": torch.full((len(rows),), restart),
        "images": images,
    }


def ask(state: State, query: list[int]) -> Tensor:
    return Keyed().query(KEYED, state, torch.tensor(query), WIDTH, 2, drawn)


def expected(example: str, query: int, restart: int = 0) -> Tensor:
    block = KEYED.randomness.uniform(
        [example], (BLOCK, WIDTH), restart=restart, step=query // BLOCK, purpose="squares"
    )
    return torch.cat([block[0, query % BLOCK], torch.tensor([float(query)])])


def test_every_query_has_the_next_row_of_its_examples_block() -> None:
    state = state_of([0, 2])
    for query in range(2 * BLOCK + 2):
        plans = ask(state, [query, query])
        assert torch.equal(plans, torch.stack([expected("a", query), expected("c", query)])), query


def test_slots_at_other_queries_change_nothing() -> None:
    """The second slot begins later, as where the engine refills; its numbers are those of an own batch."""
    state = state_of([0, 1])
    for query in range(BLOCK + 3):
        later = query - 5
        plans = ask(state, [query, later])
        assert torch.equal(plans[0], expected("a", query))
        if later >= 0:
            assert torch.equal(plans[1], expected("b", later))


def test_below_zero_nothing_is_drawn() -> None:
    class Refusing(Randomness):
        def uniform(self, *_: object, **__: object) -> Tensor:
            raise AssertionError("a draw")

    state = state_of([0])
    plan = Keyed().query(Setting(IDS, Refusing(0, "square")), state, torch.tensor([-1]), WIDTH, 2, drawn)
    assert plan.shape == (1, WIDTH + 1)


def test_restarts_draw_other_numbers_and_starts_from_a_stream_of_their_own() -> None:
    first, second = ask(state_of([1]), [0]), ask(state_of([1], restart=1), [0])
    assert torch.equal(second[0], expected("b", 0, restart=1))
    assert not torch.equal(first, second)
    restart = torch.tensor([0, 1])
    start = Keyed().start(KEYED, torch.tensor([1, 1]), restart, 3, WIDTH)
    assert start.shape == (2, 3, WIDTH)
    assert not torch.equal(start[0], start[1])
    assert not torch.equal(start[0, 0], first[0, :WIDTH])


def stream() -> tuple[Setting, torch.Generator]:
    """A setting with the library's stream, and a generator that draws the same numbers."""
    return Setting(IDS, LibraryStream(5)), torch.Generator().manual_seed(5)


def test_the_streams_query_draws_once_for_the_batch_and_then_for_each() -> None:
    setting, same = stream()
    state = state_of([0, 1, 2])
    query = torch.tensor([9, 9, 9])
    for _ in range(2):
        plan = Streamed().query(setting, state, query, WIDTH, 3, drawn)
        together, own = torch.rand(1, 3, generator=same), torch.rand(3, 1, generator=same)
        expected = torch.cat([together.expand(3, -1), own, torch.full((3, 1), 9.0)], dim=1)
        assert torch.equal(plan, expected)


def test_the_streams_start_with_one_tile_is_drawn_for_each() -> None:
    setting, same = stream()
    start = Streamed().start(setting, torch.tensor([0, 1]), torch.zeros(2), 1, WIDTH)
    assert torch.equal(start, torch.rand(2, 1, WIDTH, generator=same))


def test_the_streams_start_with_tiles_shares_a_number_per_tile() -> None:
    setting, same = stream()
    start = Streamed().start(setting, torch.tensor([0, 1]), torch.zeros(2), 3, WIDTH)
    for tile in range(3):
        turn, signs = torch.rand(1, 1, generator=same), torch.rand(2, WIDTH - 1, generator=same)
        assert torch.equal(start[:, tile], torch.cat([turn.expand(2, -1), signs], dim=1))


def test_the_stream_serves_one_batch_at_one_query() -> None:
    setting, _ = stream()
    with pytest.raises(AssertionError, match="never refilled"):
        Streamed().query(setting, state_of([0, 1]), torch.tensor([3, 4]), WIDTH, 2, drawn)
    assert Streamed().state(2, 5, torch.device("cpu")) == {}
