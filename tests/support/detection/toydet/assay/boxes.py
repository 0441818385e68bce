"""Boxes (left, top, right, bottom) in pixels: overlap, suppression and matching, free of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

Box = Sequence[float]
OVERLAP = 0.5
"""Intersection over union from which a detection finds a box."""
UNMATCHED = -1


class Detection(NamedTuple):
    """A box that a detector claims."""

    label: int
    score: float  # in [0, 1]
    box: Box


def overlap(one: Box, other: Box) -> float:
    """Intersection over union of two boxes, in [0, 1]; 0 for boxes without area."""
    across = min(one[2], other[2]) - max(one[0], other[0])
    down = min(one[3], other[3]) - max(one[1], other[1])
    if across <= 0 or down <= 0:
        return 0.0
    return across * down / (_area(one) + _area(other) - across * down)


def _area(box: Box) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def suppressed(detections: Sequence[Detection]) -> list[Detection]:
    """The detections by falling score; where two of a class overlap by `OVERLAP`, the better one."""
    kept: list[Detection] = []
    for detection in sorted(detections, key=lambda one: (-one.score, one.label, *one.box)):
        rivals = (one.box for one in kept if one.label == detection.label)
        if all(overlap(detection.box, rival) < OVERLAP for rival in rivals):
            kept.append(detection)
    return kept


def matched(detections: Sequence[Detection], labels: Sequence[int], boxes: Sequence[Box]) -> list[int]:
    """Index of the box that each detection of an image finds, else `UNMATCHED`, as in PASCAL VOC.

    By falling score a detection looks at the box of its class that it overlaps most. It finds this box from
    `OVERLAP` on, unless a detection before found it: a duplicate is wrong.
    """
    found = [UNMATCHED] * len(detections)
    taken: set[int] = set()
    for place in sorted(range(len(detections)), key=lambda place: -detections[place].score):
        detection = detections[place]
        rivals = [index for index, label in enumerate(labels) if label == detection.label]
        overlaps = {index: overlap(detection.box, boxes[index]) for index in rivals}
        best = max(rivals, key=overlaps.__getitem__, default=UNMATCHED)
        if best != UNMATCHED and best not in taken and overlaps[best] >= OVERLAP:
            found[place] = best
            taken.add(best)
    return found
