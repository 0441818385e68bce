"""The random numbers of the Square Attack, per example or in the order of the released code.

A query takes one row of numbers in [0, 1): first row and first column of its square (L2: of two squares, then
whether the pattern is turned), then one number per channel, for the sign. Per example they are drawn in
blocks of many queries, because a generator costs as much as a thousand numbers; the state keeps the plans of
each slot's present block (`square_proposals`).

Numbers are float32 for images of any dtype: positions are the same in each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from assay.attacks.kernel import Setting, State
from assay.attacks.sending import sent

BLOCK = 64

Plan = Callable[[Tensor, Tensor], Tensor]
"""Makes plans of draws (B, K, width) for queries (B, K) or (1, K), on the CPU: (B, K, plan width)."""


class SquareDraws(Protocol):
    """Source of the numbers."""

    def state(self, count: int, width: int, device: torch.device) -> State:
        """Returns its keys in the state of new slots, for plans of this width."""

    def start(self, setting: Setting, rows: Tensor, restart: Tensor, tiles: int, width: int) -> Tensor:
        """Draws the numbers of a start, (B, tiles, width) on the CPU."""

    def query(
        self, setting: Setting, state: State, query: Tensor, width: int, shared: int, plan: Plan
    ) -> Tensor:
        """The plan of the next query of each slot, (B, plan width) on the device.

        `query`, on the CPU, (B,), counts the queries of a restart from 0 on; below 0 nothing is drawn, and
        the plan is arbitrary. `shared` of the `width` numbers are the same for all examples of a batch in the
        released code.
        """


class Keyed:
    """Numbers keyed by example."""

    def state(self, count: int, width: int, device: torch.device) -> State:
        """An empty block for each slot."""
        return {"plans": torch.zeros(count, BLOCK, width, device=device)}

    def start(self, setting: Setting, rows: Tensor, restart: Tensor, tiles: int, width: int) -> Tensor:
        """As `SquareDraws`."""
        return setting.randomness.uniform(setting.ids_of(rows), (tiles, width), restart=restart.tolist())

    def query(
        self, setting: Setting, state: State, query: Tensor, width: int, shared: int, plan: Plan
    ) -> Tensor:
        """The next row of each slot's block, after drawing the blocks that begin."""
        del shared
        place, plans = query % BLOCK, state["plans"]
        begun = place == 0
        if begun.any():
            for first in query[begun].unique().tolist():
                self._begin(setting, state, first, (query == first).nonzero().flatten(), width, plan)
        return plans[torch.arange(place.shape[0], device=plans.device), sent(place, plans)]

    @staticmethod
    def _begin(setting: Setting, state: State, first: int, slots: Tensor, width: int, plan: Plan) -> None:
        plans = state["plans"]
        draws = setting.randomness.uniform(
            setting.ids_of(state["row"][slots]),
            (BLOCK, width),
            restart=state["restart"][slots].tolist(),
            step=first // BLOCK,
            purpose="squares",
            device=plans.device,
        )
        queries = torch.arange(first, first + BLOCK)[None]
        plans.index_copy_(0, sent(slots, plans), plan(draws, queries))


class Streamed:
    """Numbers in the order in which the released code draws them, some of them for a whole batch."""

    def state(self, count: int, width: int, device: torch.device) -> State:
        """Keeps nothing."""
        del count, width, device
        return {}

    def start(self, setting: Setting, rows: Tensor, restart: Tensor, tiles: int, width: int) -> Tensor:
        """As `SquareDraws`."""
        del restart
        if tiles == 1:
            return setting.randomness.uniform(setting.ids_of(rows), (1, width))
        drawn = [self._row(setting, rows, width, 1) for _ in range(tiles)]
        return torch.stack(drawn, dim=1)

    def query(
        self, setting: Setting, state: State, query: Tensor, width: int, shared: int, plan: Plan
    ) -> Tensor:
        """Draws for all slots; they must be at the same query."""
        assert bool((query == query[0]).all()), "one batch that is never refilled"
        draws = self._row(setting, state["row"], width, shared).to(state["images"].device)
        return plan(draws[:, None], query[:, None])[:, 0]

    @staticmethod
    def _row(setting: Setting, rows: Tensor, width: int, shared: int) -> Tensor:
        together = setting.randomness.uniform(["batch"], (shared,)).expand(len(rows), -1)
        own = setting.randomness.uniform(setting.ids_of(rows), (width - shared,))
        return torch.cat([together, own], dim=1)
