"""Examples kept while an attack runs, for the gallery of its evaluation (`docs/galleries.md`).

Which ones depends on their ranks in the order of sampling and on their outcomes alone: not on shards, batches
or the order in which examples finish. Memory is bounded: examples that broke are final, so the lowest ranks
are kept; of those that hold out, each of a few low ranks, because a later stage may still break them.

Legend: B batch, C channels, H height, W width, F features, T steps.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from assay.attacks.sending import sent
from assay.service.contract.gallery import MAX_ITEMS, GalleryAnswer, GalleryItem

log = logging.getLogger(__name__)

# Examples that held out, and images of segmentation models, are shown with ranks below these.
HELD_RANKS, MAP_RANKS = 48, 24


class Candidate(NamedTuple):
    """An example kept for a gallery; tensors are on the CPU."""

    row: int  # its row in the shard
    clean: Tensor  # the unchanged input in the attacked space, (C, H, W) or (F + 1, T)
    changed: Tensor  # the input that counts
    before: GalleryAnswer | None  # the answer to `clean`
    after: GalleryAnswer  # the answer to `changed`
    broken: bool  # whether it was right before and is wrong now


class Candidates:
    """Collects candidates from a ledger."""

    def __init__(self, ranks: Mapping[int, int]) -> None:
        self._ranks = ranks
        self.forget()

    def forget(self) -> None:
        """Begins again."""
        self._before: dict[int, GalleryAnswer] = {}
        self._broken: dict[int, Candidate] = {}
        self._held: dict[int, Candidate] = {}

    def note_clean(self, rows: Tensor, right: Tensor, logits: Tensor) -> None:
        """Records the right answers to unchanged examples, the only ones shown; `right` is on the CPU."""
        wanted = [
            place
            for place, (row, fine) in enumerate(zip(rows.tolist(), right.tolist(), strict=True))
            if fine and row in self._ranks
        ]
        if wanted:
            there = sent(torch.tensor(wanted), logits)
            self._before |= zip(rows[wanted].tolist(), answers(logits[there]), strict=True)

    def note(self, rows: Tensor, values: Mapping[str, Tensor], images: Tensor, clean: Tensor) -> None:
        """Takes outcomes of examples; those with a rank above 0 are final, others may be replaced.

        `values`: `rank` (B,) and `logits` (B, classes); `images`: the images that count, (B, ...); `clean`:
        The unchanged ones.
        """
        places = [place for place, row in enumerate(rows.tolist()) if row in self._before]
        if not places:
            return
        broken = (values["rank"][sent(torch.tensor(places), images)] > 0).tolist()
        places = [
            place
            for place, gone in zip(places, broken, strict=True)
            if gone or self._ranks[int(rows[place])] < HELD_RANKS
        ]
        if not places:
            return
        there = sent(torch.tensor(places), images)
        parts = zip(
            rows[places].tolist(),
            clean[there].cpu(),
            images[there].cpu(),
            answers(values["logits"][there]),
            (values["rank"][there] > 0).tolist(),
            strict=True,
        )
        for row, before, after, answer, gone in parts:
            candidate = Candidate(row, before.clone(), after.clone(), self._before[row], answer, gone)
            if gone:
                self._held.pop(row, None)
                self._broken[row] = candidate
                if len(self._broken) > MAX_ITEMS:
                    del self._broken[max(self._broken, key=self._ranks.__getitem__)]
            else:
                self._held[row] = candidate

    @property
    def pixels(self) -> int:
        """Pixels of an image, or points of a feature of a series; 0 without any candidate."""
        kept = [*self._broken.values(), *self._held.values()]
        return kept[0].clean[0].numel() if kept else 0

    def chosen(self, limit: int = MAX_ITEMS) -> list[tuple[int, Candidate]]:
        """The broken examples by rank, then those that held out, at most `limit`, each with its rank.

        The merge needs no more of a shard: for each example broken here it shows one less that held out.
        """
        parts = (
            [(self._ranks[row], kept) for row, kept in part.items()] for part in (self._broken, self._held)
        )
        broken, held = (sorted(part, key=lambda one: one[0]) for part in parts)
        return [*broken, *held][:limit]


def answers(logits: Tensor) -> list[GalleryAnswer]:
    """The model's answers by its logits (B, classes): class and softmax; of equal ones the first class."""
    values = logits.detach().double().cpu()
    shares = values.softmax(1)
    found = shares.max(1)
    return [
        GalleryAnswer(prediction=index, confidence=min(round(share, 6), 1.0))
        if math.isfinite(share)
        else GalleryAnswer()
        for index, share in zip(values.max(1).indices.tolist(), found.values.tolist(), strict=True)
    ]


def safely(make: Callable[[], Sequence[GalleryItem]]) -> tuple[GalleryItem, ...] | None:
    """A gallery's items; None, with a log line, if they fail: a gallery never fails a shard."""
    try:
        return tuple(make())
    except Exception:
        log.exception("the examples for the gallery could not be made")
        return None


def finite(value: float) -> float | None:
    """The number, None if it is not finite."""
    return value if math.isfinite(value) else None
