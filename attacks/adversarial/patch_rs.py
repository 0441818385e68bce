"""Patch-RS: Sparse-RS for a patch.

Croce, Andriushchenko, Singh, Flammarion and Hein 2022 (`sparse_rs.py`), section 5.1, for patches of an image:
an s x s square of corners of the colour cube,

    start    a place drawn uniformly, columns of one colour each, drawn uniformly
    query i  every 5 (1 + floor(i / 1000)) queries the place moves by up to floor(0.75 (1 - i / N) h) pixels
             along each axis, drawn uniformly, and stays in the image; else a square of the patch, of side
             max(floor(sqrt(a_i) s), 1) and a place drawn uniformly, gets one colour: in each channel 0 or 1
    a_i      `share`, and its 2nd, 4th, 8th, 16th, 32nd, 32nd, 64th, 64th and 128th part after 10, 50, 200,
             500, 1000, 2000, 4000, 6000 and 8000 of 10,000 queries
    kept where z_y - max_{i != y} z_i falls

The divisors, the intervals and the shifts are from the authors' code, whose start never reaches the last row
and column; here it does. Other budgets have the schedule in proportion.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Interval
from torch import Tensor

from assay.attacks import parameters
from assay.attacks.adversarial import sparse_rs
from assay.attacks.adversarial.kernels.random_search import RandomSearch, check_budget
from assay.attacks.kernel import Attack, Examples, Setting, State
from assay.attacks.sending import sent
from assay.attacks.threat import PIXELS

__all__ = ["patch_rs"]

TASKS = ("classification",)
THREAT = {"knowledge": "black_box", "search": "iterative"}
TABLE = "attack"
PAPER = sparse_rs.PAPER
PASSES = ("params.queries + 2", "0")
# Corners of the range of pixels, under any protocol of the job.
PROTOCOLS = ("pixel",)
RULES = (parameters.PATCH_RULE,)

CHECKPOINTS = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)
DIVISORS = (1, 2, 4, 8, 16, 32, 32, 64, 64, 128)
MAX_SHIFT = 0.75


def patch_rs(
    *,
    size: Annotated[int, "strength", Interval(ge=1, le=10_000)] = 16,
    queries: Annotated[int, Interval(ge=1, le=1_000_000)] = 10_000,
    share: Annotated[float, Interval(gt=0, le=1)] = 0.4,
) -> Attack:
    """A square of extreme colours, found by random search.

    Args:
        size: Side of the square, in pixels.
        queries: Proposals, the start included.
        share: Share of the patch that the first proposals paint.
    """
    check_budget(queries, share, size=size)
    return _PatchRS(queries, share, size)


@dataclass(frozen=True)
class _PatchRS(RandomSearch):
    """Keeps the best `patch`, (B, C, s, s), and its `place`: row and column, int64 (B, 2)."""

    size: int
    KEPT: ClassVar[tuple[str, ...]] = ("patch", "place")
    name: ClassVar[str] = "patch_rs"

    def _nothing(self, examples: Examples) -> State:
        images = examples.images
        count, channels, height, width = images.shape
        if self.size > min(height, width):
            raise ValueError(f"size is {self.size}, the images have {height} x {width}")
        patch = images.new_zeros(count, channels, self.size, self.size)
        return {"patch": patch, "place": torch.zeros(count, 2, dtype=torch.int64, device=images.device)}

    def side(self, query: int) -> int:
        """Side of the square that a proposal paints, in pixels."""
        divisor = DIVISORS[sum(self.scaled(query) > bound for bound in CHECKPOINTS)]
        return max(int((self.share / divisor) ** 0.5 * self.size), 1)

    def shift(self, query: int, height: int) -> int:
        """How far a proposal moves the patch at most, in pixels; 0 where it paints instead."""
        if query % (5 * (1 + query // 1000)):
            return 0
        return int((self.queries - query) / self.queries * MAX_SHIFT * height)

    def _propose(self, setting: Setting, state: State) -> None:
        patches, places = state["patch"].clone(), state["place"].clone()
        adversarial = state["images"].clone()
        low, high = PIXELS
        size = self.size
        channels, height, width = adversarial.shape[1:]
        room = torch.tensor([height - size, width - size])
        ids, queries = setting.ids_of(state["row"]), state["iteration"].tolist()
        pairs = setting.randomness.uniform(ids, (2,), step=queries, purpose="place").double()
        colours = setting.randomness.uniform(ids, (channels, 1, size), step=queries, purpose="colours")
        for slot, query in enumerate(queries):
            pair, columns = pairs[slot], colours[slot]
            most = self.shift(query, height)
            if query == 0:
                places[slot] = sent((pair * (room + 1)).long(), places)
                patches[slot] = sent(torch.where(columns < 0.5, low, high), patches)
            elif most > 0:
                moved = (pair * (2 * most + 1)).long() - most
                there = (state["place"][slot].cpu() + moved).clamp(min=0)
                places[slot] = sent(torch.minimum(there, room), places)
            else:
                side = self.side(query)
                top, left = (pair * (size - side + 1)).long().tolist()
                painted = sent(torch.where(columns[..., :1] < 0.5, low, high), patches)
                patches[slot, :, top : top + side, left : left + side] = painted
        rows, columns = _squares(places, size)
        batch = torch.arange(len(patches), device=patches.device)[:, None, None]
        # Advanced indices around the slice bring (B, s, s, C) to the front.
        adversarial[batch, :, rows[:, :, None], columns[:, None, :]] = patches.permute(0, 2, 3, 1)
        state["proposed_patch"], state["proposed_place"] = patches, places
        state["adversarial"] = adversarial


def _squares(places: Tensor, size: int) -> tuple[Tensor, Tensor]:
    steps = torch.arange(size, device=places.device)
    return places[:, :1] + steps, places[:, 1:] + steps
