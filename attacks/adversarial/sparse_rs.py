"""Sparse-RS: random search over which pixels change and to what, without gradients.

Croce, Andriushchenko, Singh, Flammarion and Hein 2022, "Sparse-RS: a Versatile Framework for Query-Efficient
Sparse Black-Box Adversarial Attacks", algorithm 1 and section 4.1: with M the k changed pixels,

    start    k pixels drawn uniformly, each with a corner of the colour cube drawn uniformly
    query i  e = max(floor(a_i k), 1) pixels of M get their own colours back; e others, drawn uniformly, get
             corners drawn uniformly
    a_i      `share` / 2, and / 4, 5, 6, 8, 10, 12, 15 and 20 after 50, 200, 500, 1000, 2000, 4000, 6000 and
             8000 of 10,000 queries
    kept where z_y - max_{i != y} z_i falls

Pixels are places: all channels of a place change together. The divisors are from the authors' code. Other
budgets have the schedule in proportion, as that code with `rescale_schedule`.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Interval
from torch import Tensor

from assay.attacks.adversarial.kernels.random_search import RandomSearch, check_budget
from assay.attacks.kernel import Attack, Examples, Setting, State
from assay.attacks.sending import sent
from assay.attacks.threat import PIXELS

__all__ = ["sparse_rs"]

TASKS = ("classification",)
THREAT = {"knowledge": "black_box", "search": "iterative"}
TABLE = "attack"
PAPER = (
    "Croce et al. 2022, Sparse-RS: a Versatile Framework for Query-Efficient Sparse Black-Box Adversarial"
    " Attacks"
)
PASSES = ("params.queries + 2", "0")
# Corners of the range of pixels, under any protocol of the job.
PROTOCOLS = ("pixel",)
RULES = (
    (
        "model.image_size is None or params.pixels < model.image_size * model.image_size",
        "pixels must be fewer than those of an image",
    ),
)

CHECKPOINTS = (50, 200, 500, 1000, 2000, 4000, 6000, 8000)
DIVISORS = (2, 4, 5, 6, 8, 10, 12, 15, 20)


def sparse_rs(
    *,
    pixels: Annotated[int, "strength", Interval(ge=1, le=1_000_000)] = 50,
    queries: Annotated[int, Interval(ge=1, le=1_000_000)] = 5000,
    share: Annotated[float, Interval(gt=0, le=1)] = 0.3,
) -> Attack:
    """Few pixels of extreme colours, found by random search.

    Args:
        pixels: How many pixels change.
        queries: Proposals, the start included.
        share: Twice the share of them that the first proposals exchange.
    """
    check_budget(queries, share, pixels=pixels)
    return _SparseRS(queries, share, pixels)


@dataclass(frozen=True)
class _SparseRS(RandomSearch):
    """Keeps the best image, `current`, and its `changed` pixels, row by row, int64 (B, k)."""

    pixels: int
    KEPT: ClassVar[tuple[str, ...]] = ("current", "changed")
    name: ClassVar[str] = "sparse_rs"

    def _nothing(self, examples: Examples) -> State:
        images = examples.images
        height, width = images.shape[-2:]
        if self.pixels >= height * width:
            raise ValueError(f"pixels is {self.pixels}, the images have {height} x {width}")
        none = torch.zeros(len(images), self.pixels, dtype=torch.int64, device=images.device)
        return {"current": images, "changed": none}

    def exchanged(self, query: Tensor) -> Tensor:
        """How many pixels a proposal exchanges, (B,); all of them at the start."""
        scaled = torch.tensor([self.scaled(one) for one in query.tolist()])
        place = torch.bucketize(scaled, torch.tensor(CHECKPOINTS))
        divisor = torch.tensor(DIVISORS, dtype=torch.float64)[place]
        count = (self.share / divisor * self.pixels).long().clamp(min=1)
        return torch.where(query == 0, self.pixels, count)

    def _propose(self, setting: Setting, state: State) -> None:
        images = state["images"]
        channels, height, width = images.shape[1:]
        count = self.exchanged(state["iteration"])  # (B,)
        leaving, arriving, colours = self._drawn(setting, state, count, channels, height * width)
        some = sent(torch.arange(self.pixels) < count[:, None], images)  # (B, k)
        # In the order of the draws the first `count` places of M are exchanged.
        order = sent(leaving, images)
        fresh = torch.where(some, sent(arriving, images), state["changed"].gather(1, order))
        proposed = torch.empty_like(state["changed"]).scatter(1, order, fresh)
        flat, own = state["current"].flatten(2), images.flatten(2)  # (B, C, HW)
        # Pixels that leave get their own colours back, then those that arrive get corners.
        left = state["changed"].gather(1, order)[:, None].expand(-1, channels, -1)
        back = torch.where(some[:, None], own.gather(2, left), flat.gather(2, left))
        flat = torch.where(
            sent(state["iteration"] == 0, images)[:, None, None], own, flat.scatter(2, left, back)
        )
        low, high = PIXELS
        corners = torch.where(sent(colours, images) < 0.5, low, high).to(flat.dtype)  # (B, C, k)
        there = fresh[:, None].expand(-1, channels, -1)
        flat = flat.scatter(2, there, torch.where(some[:, None], corners, flat.gather(2, there)))
        state["proposed_changed"] = proposed
        state["adversarial"] = state["proposed_current"] = flat.view_as(images)

    def _drawn(
        self, setting: Setting, state: State, count: Tensor, channels: int, places: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        ids, queries = setting.ids_of(state["row"]), state["iteration"].tolist()
        device = state["images"].device
        orders = setting.randomness.permutation(
            ids, self.pixels, step=queries, purpose="leaving", device=device
        )
        colours = setting.randomness.uniform(
            ids, (channels, self.pixels), step=queries, purpose="colours", device=device
        )
        most = 2 * int(count.max())
        first = setting.randomness.below(ids, (most,), places, step=queries, purpose="arriving").tolist()
        pixels, changed = [], state["changed"].cpu()
        for slot, (example, query) in enumerate(zip(ids, queries, strict=True)):
            taken = set() if query == 0 else set(changed[slot].tolist())
            # M itself may only be drawn again where it leaves no room for as many others.
            size = 2 * int(count[slot])
            wanted = min(size // 2, places - len(taken))
            drawn = first[slot][:size]
            found: list[int] = []
            for again in itertools.count(1):
                for place in drawn:
                    if place not in taken and len(found) < wanted:
                        taken.add(place)
                        found.append(place)
                if len(found) == wanted:
                    break
                (drawn,) = setting.randomness.below(
                    [example], (size,), places, step=query, purpose=f"arriving {again}"
                ).tolist()
            pixels.append(torch.tensor(found + found[:1] * (self.pixels - wanted)))
            count[slot] = wanted
        return orders, sent(torch.stack(pixels), device), colours
