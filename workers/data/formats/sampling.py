"""Selection of examples by hashes of their ids alone: the same for every job, model and seed.

So comparisons of jobs are paired, and training never sees an evaluated example.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Sequence

from assay.workers.data.formats.dataset import ExampleSet

HELD_OUT_DIVISOR = 5  # A fifth of each class is held out for evaluation
GALLERY_EXAMPLES = 256  # That a job's galleries may show; few enough to keep a shard's adversarial images


def sampled_as(data: ExampleSet) -> str:
    """Name that keys sampling: the set's, or that of the set with the same examples."""
    return str(getattr(data, "sampled_as", data.name))


def example_key(name: str, identifier: str) -> bytes:
    """sha256 of "name/identifier": the sort key of the sampling order."""
    return hashlib.sha256(f"{name}/{identifier}".encode()).digest()


def evaluation_order(name: str, ids: Sequence[str], limit: int | None) -> list[int]:
    """Indices of evaluated examples, sorted by id: all, or `limit` of smallest `example_key`."""
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be >= 1 or None; got {limit}")
    chosen = list(range(len(ids)))
    if limit is not None and limit < len(ids):
        chosen = sorted(chosen, key=lambda index: example_key(name, ids[index]))[:limit]
    return sorted(chosen, key=lambda index: ids[index])


def gallery_ranks(
    name: str, ids: Sequence[str], order: Sequence[int], start: int, stop: int
) -> dict[int, int]:
    """Row of the shard to rank, of examples within a limit of 256."""
    places = heapq.nsmallest(
        GALLERY_EXAMPLES, range(len(order)), key=lambda place: example_key(name, ids[order[place]])
    )
    return {place - start: rank for rank, place in enumerate(places) if start <= place < stop}


def held_out_split(name: str, ids: Sequence[str], labels: Sequence[int]) -> tuple[list[int], list[int]]:
    """Training and test indices, stratified 80/20 by `example_key`.

    Of a class with k examples, the floor(k / 5) with the smallest key are test, at least one when k >= 2; a
    single example is for training.
    """
    by_class: dict[int, list[int]] = {}
    for index, label in enumerate(labels):
        by_class.setdefault(label, []).append(index)
    test: set[int] = set()
    for members in by_class.values():
        count = max(len(members) // HELD_OUT_DIVISOR, 1 if len(members) > 1 else 0)
        test.update(sorted(members, key=lambda index: example_key(name, ids[index]))[:count])
    return [index for index in range(len(ids)) if index not in test], sorted(test)
