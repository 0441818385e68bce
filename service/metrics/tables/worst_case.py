"""The worst case over several attacks on a segmentation model, separately for each metric.

Croce, Singh and Hein 2024, "Towards Reliable Evaluation and Fast Training of Robust Semantic Segmentation
Models", section 3.6. Each image has candidates: the unattacked image, and the result of each loss. The
adversary shows one of them, so a metric's worst case is over one choice for all images together; the smallest
of the losses' own values is not the worst case.

- Pixel accuracy: for each image the candidate with the fewest right pixels. Exact.
- Mean class accuracy: with N_c pixels of class c in all images, it is a sum over the images of TP_c / N_c, so
again the best choice is made for each image alone. Exact; not in the paper.
- mIoU: its numerators and denominators are sums over all images, and the best choice is intractable; the
  paper's greedy search gives an upper bound of the minimum. All images begin with the candidate that has the
  smallest mIoU alone; then each image takes another candidate where that lowers mIoU, again and again until
  no image changes. So the value is never above a single loss's value. The paper goes through the images in a
  random order; here the order is by id, and the candidate that lowers mIoU most is taken.

Intervals are jackknife intervals over images in which every image keeps its candidate: they cover the error
of sampling images, not the choice that another sample would lead to.

Plain Python and integers: the same columns give the same bits. Legend: n images, K classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.service.contract.results import Metric, StageBreakdown
from assay.service.metrics.answers import Answers
from assay.service.metrics.paired import Difference, Pair, PairedMetrics, Reported, Rows
from assay.service.metrics.statistics.pixel_counts import COUNTS, Counts, ratios, total
from assay.service.metrics.table import Column, Context, Summary, columns_of, stage_row
from assay.service.metrics.tables.segmentation import (
    PairedPixels,
    Segmentation,
    pixel_answers,
    segmentation_metrics,
)

__all__ = ["AttackedSegmentation"]

INTERSECTION, PREDICTED = "_intersection", "_predicted"


class AttackedSegmentation(Segmentation):
    """Pixel counts of every candidate, and of the candidate with the fewest right pixels (`worst`)."""

    name = "attacked_segmentation"
    columns = (
        *columns_of("id worst intersection target predicted"),
        Column("counts of each candidate", pattern=f".+({INTERSECTION}|{PREDICTED})"),
        *columns_of("forward backward"),
    )

    def summarise(self, rows: Rows, context: Context) -> Summary:
        """The worst case of each metric, and the metrics of each candidate alone."""
        found = worst_case(rows)
        return Summary(found.metrics, candidate_breakdown(context.evidence, found.alone))

    def paired(self, pair: Pair) -> PairedMetrics:
        """A jackknife over images; every image keeps the candidate that is the metric's worst case."""
        return PairedWorstCases(pair)

    def unattacked(self, rows: Rows, context: Context) -> Answers | None:
        """The classes of the pixels of the first candidate, the unattacked image."""
        del context
        first = _candidates(rows)[0][0]
        counts = {name: rows[f"{first}_{name}"] for name in ("intersection", "predicted")}
        return pixel_answers(counts | {"target": rows["target"]}, attacked=True)


class PairedWorstCases:
    """Two models' worst cases on the same images, each metric with candidates of its own."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair

    def difference(self, metric: str, reported: Reported) -> Difference | None:
        """As `PairedMetrics`."""
        if metric not in CHOICES or not self._pair.ids:
            return None
        first, second = (self._shown(side, metric) for side in (0, 1))
        chosen = Pair(self._pair.evaluation, first, second, self._pair.results)
        return PairedPixels(chosen).difference(metric, reported)

    def _shown(self, side: int, metric: str) -> dict[str, Any]:
        """The counts of the candidates chosen among all images of a job."""
        columns, ids = self._pair.columns[side], sorted(self._pair.rows[side])
        order = [self._pair.rows[side][one] for one in ids]
        _, images = _candidates({name: [column[at] for at in order] for name, column in columns.items()})
        counts = [image[place] for image, place in zip(images, CHOICES[metric](images), strict=True)]
        return {"id": ids, **dict(zip(COUNTS, zip(*counts, strict=True), strict=True))}


@dataclass(frozen=True)
class WorstCase:
    """Metrics over the candidates."""

    metrics: dict[str, Metric]  # The worst case of each metric
    alone: dict[str, dict[str, Metric]]  # The metrics of each candidate, used for every image


def worst_case(columns: Mapping[str, Sequence[Any]]) -> WorstCase:
    """The metrics of an attack, from `target` and each candidate's `..._intersection` and `..._predicted`.

    Columns are (n, K), sorted by example id. Raises ValueError: a column is empty, or of another shape.
    """
    names, images = _candidates(columns)
    known: dict[tuple[int, ...], dict[str, Metric]] = {}

    def shown(choice: Sequence[int]) -> dict[str, Metric]:
        """The metrics of a choice, computed once: their intervals take long, and two choices may be equal."""
        if (key := tuple(choice)) not in known:
            counts = [image[place] for image, place in zip(images, choice, strict=True)]
            known[key] = segmentation_metrics(dict(zip(COUNTS, zip(*counts, strict=True), strict=True)))
        return known[key]

    return WorstCase(
        metrics={name: shown(choose(images))[name] for name, choose in CHOICES.items()},
        alone={name: shown([place] * len(images)) for place, name in enumerate(names)},
    )


def _candidates(columns: Mapping[str, Sequence[Any]]) -> tuple[list[str], list[tuple[Counts, ...]]]:
    """The names of the candidates, and of each image the counts of each."""
    names = [name.removesuffix(INTERSECTION) for name in columns if name.endswith(INTERSECTION)]
    parts = [
        list(zip(columns[name + INTERSECTION], columns["target"], columns[name + PREDICTED], strict=True))
        for name in names
    ]
    return names, list(zip(*parts, strict=True))


def candidate_breakdown(
    evidence: Sequence[Mapping[str, Any]], alone: Mapping[str, dict[str, Metric]]
) -> list[StageBreakdown]:
    """One row per candidate of an attack on a segmentation model: the unattacked images, then each loss."""
    rows = []
    for name, metrics in alone.items():
        same = [stage for shard in evidence for stage in shard["stages"] if stage["name"] == name]
        rows.append(stage_row(name, metrics, same, sum(stage["n"] for stage in same)))
    return rows


def least_pixel_accuracy(images: Sequence[Sequence[Counts]]) -> list[int]:
    """The candidate of each image with the fewest right pixels; the first of equal ones."""
    return [_first_least([sum(found) for found, _, _ in image]) for image in images]


def least_mean_accuracy(images: Sequence[Sequence[Counts]]) -> list[int]:
    """The candidate of each image that lowers the mean class accuracy of all of them the most."""
    pixels = total([image[0] for image in images])[1]
    weights = [1 / there if there else 0.0 for there in pixels]
    return [
        _first_least([sum(map(float.__mul__, map(float, found), weights)) for found, _, _ in image])
        for image in images
    ]


def least_miou(images: Sequence[Sequence[Counts]]) -> list[int]:
    """The candidate of each image (all have as many) by the greedy search for the smallest mIoU of all."""
    alone = [ratios(total([image[place] for image in images]))["miou"] for place in range(len(images[0]))]
    known = [value for value in alone if value is not None]
    if not known:
        return [0] * len(images)
    first = next(place for place, value in enumerate(alone) if value == min(known))
    search = _Search(images, first)
    while search.improve():
        pass
    return search.choice


CHOICES = {"miou": least_miou, "mean_accuracy": least_mean_accuracy, "pixel_accuracy": least_pixel_accuracy}


class _Search:
    """The sums of the present choice, updated for another candidate of an image."""

    def __init__(self, images: Sequence[Sequence[Counts]], first: int) -> None:
        self.choice = [first] * len(images)
        # Per image and candidate the classes with an intersection or union above zero.
        self._parts = [[_parts(counts) for counts in image] for image in images]
        classes = len(images[0][0][0])
        self._found, self._union = [0] * classes, [0] * classes
        for parts in self._parts:
            self._add(parts[first], 1)
        self._value = self._miou()

    def improve(self) -> bool:
        """Goes through the images once; returns whether any candidate changed."""
        changed = False
        for row, parts in enumerate(self._parts):
            present = self.choice[row]
            best, lowest = present, self._value
            self._add(parts[present], -1)
            for place, part in enumerate(parts):
                if place == present or part == parts[present]:
                    continue
                self._add(part, 1)
                value = self._miou()
                self._add(part, -1)
                if value < lowest:
                    best, lowest = place, value
            self._add(parts[best], 1)
            changed |= best != present
            self.choice[row], self._value = best, lowest
        return changed

    def _add(self, part: Sequence[tuple[int, int, int]], sign: int) -> None:
        for index, found, union in part:
            self._found[index] += sign * found
            self._union[index] += sign * union

    def _miou(self) -> float:
        """As `ratios`, in the same order of additions; 1, the maximum, where no class is left."""
        shares = [found / union for found, union in zip(self._found, self._union, strict=True) if union]
        return sum(shares) / len(shares) if shares else 1.0


def _parts(counts: Counts) -> list[tuple[int, int, int]]:
    """(class, intersection, union) of the classes that occur."""
    rows = enumerate(zip(*counts, strict=True))
    return [
        (index, found, there + called - found) for index, (found, there, called) in rows if there or called
    ]


def _first_least(values: Sequence[float]) -> int:
    return min(range(len(values)), key=values.__getitem__)
