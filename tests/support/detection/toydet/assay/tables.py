"""The outcome table of detections: average precision, with all points of the curve.

Everingham et al. 2010, "The PASCAL Visual Object Classes (VOC) Challenge", section 4.2, with the area under
all points as in VOC 2010. Of a class with T boxes, and thresholds t at the scores of its detections:

    recall(t) = matches(t) / T        precision(t) = matches(t) / detections(t)
    AP        = sum over t of (recall(t) - recall(next higher t)) max_{u <= t} precision(u)

Detections of equal score enter together, so that AP depends on no order of examples. The metric is the mean
over the classes that have boxes. Its interval is the jackknife's over images.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby
from typing import ClassVar, NamedTuple

from toydet.assay.boxes import UNMATCHED

from assay.service.contract.results import Metric, PartBreakdown, Warning
from assay.service.metrics.analyses.svg import Panel, Series, draw
from assay.service.metrics.paired import Rows
from assay.service.metrics.statistics.estimates import groups, jackknifed
from assay.service.metrics.table import Context, OutcomeTable, Reasons, Summary, Units, columns_of

UNDEFINED = "no image has a box, or the model's outputs are not finite"
CURVES = 4  # A panel has so many.


class Claim(NamedTuple):
    """A detection of a class."""

    score: float
    image: int
    right: bool


class ClassClaims(NamedTuple):
    """The detections of a class by falling score, and its boxes."""

    claims: Sequence[Claim]
    boxes: Sequence[int]  # number of boxes in each image

    def curve(self, without: Collection[int] = ()) -> list[tuple[float, float]]:
        """(recall, greatest precision from there on), by rising recall; [] without boxes."""
        total = sum(self.boxes) - sum(self.boxes[image] for image in without)
        if total == 0:
            return []
        points, claimed, right = [], 0, 0
        kept = (claim for claim in self.claims if claim.image not in without)
        for _, tied in groupby(kept, key=lambda claim: claim.score):
            hits = [claim.right for claim in tied]
            claimed, right = claimed + len(hits), right + sum(hits)
            points.append((right / total, right / claimed))
        best, envelope = 0.0, []
        for recall, precision in reversed(points):
            best = max(best, precision)
            envelope.append((recall, best))
        return envelope[::-1] or [(0.0, 0.0)]

    def average_precision(self, without: Collection[int] = ()) -> float | None:
        """AP in [0, 1] without some images; None without boxes."""
        curve = self.curve(without)
        befores = [0.0, *(recall for recall, _ in curve)]
        area = math.fsum(
            (recall - before) * precision for (recall, precision), before in zip(curve, befores, strict=False)
        )
        return area if curve else None


class Detections(OutcomeTable):
    """Boxes and detections of images; attacked ones beside those of the clean images."""

    name = "detections"
    columns = columns_of(
        "id truth_labels truth_boxes labels scores boxes matches forward backward",
        optional="clean_labels clean_scores clean_boxes clean_matches loss clean_loss linf",
    )
    units: ClassVar[Units] = {"average_precision": "proportion", "clean_average_precision": "proportion"}
    undefined: ClassVar[Reasons] = dict.fromkeys(units, UNDEFINED)

    def summarise(self, rows: Rows, context: Context) -> Summary:
        """`average_precision` of all classes and each; under an attack also `clean_average_precision`."""
        names = _class_names(rows, context)
        n = len(rows["id"])
        prefixes = ["", *(["clean_"] if "clean_scores" in rows else [])]
        claims = {prefix: claims_of(rows, len(names), prefix) for prefix in prefixes}
        metrics = {f"{prefix}average_precision": _metric(claims[prefix], n) for prefix in prefixes}
        parts = [
            PartBreakdown(
                label=name,
                keys={"class": name},
                metrics={
                    f"{prefix}average_precision": _metric(claims[prefix][label : label + 1], n)
                    for prefix in prefixes
                },
            )
            for label, name in enumerate(names)
        ]
        return Summary(metrics, parts, _warnings(parts), plot=_plot(names, claims[""]))


def claims_of(rows: Rows, classes: int, prefix: str = "") -> list[ClassClaims]:
    """The detections of each class, (classes,); [] where the outputs for an image were not finite."""
    if None in rows[f"{prefix}scores"]:
        return []
    found: list[list[Claim]] = [[] for _ in range(classes)]
    columns = (rows[f"{prefix}{name}"] for name in ("labels", "scores", "matches"))
    for image, (labels, scores, matches) in enumerate(zip(*columns, strict=True)):
        for label, score, match in zip(labels, scores, matches, strict=True):
            found[label].append(Claim(score, image, match != UNMATCHED))
    return [
        ClassClaims(
            sorted(claims, key=lambda claim: -claim.score),
            [labels.count(label) for labels in rows["truth_labels"]],
        )
        for label, claims in enumerate(found)
    ]


def mean_average_precision(classes: Sequence[ClassClaims], without: Collection[int] = ()) -> float | None:
    """The mean AP of the classes that have boxes; None where no class has."""
    known = [value for one in classes if (value := one.average_precision(without)) is not None]
    return math.fsum(known) / len(known) if known else None


def _metric(classes: Sequence[ClassClaims], n: int) -> Metric:
    left_out = [mean_average_precision(classes, group) for group in groups(n)]
    return jackknifed(mean_average_precision(classes), left_out, n)


def _class_names(rows: Rows, context: Context) -> list[str]:
    """The names that a shard reports, else the numbers of the classes that occur."""
    for facts in context.facts:
        if "class_names" in facts:
            return [*facts["class_names"]]
    labels = [label for name in ("truth_labels", "labels") for row in rows[name] for label in row or ()]
    return [str(label) for label in range(max(labels, default=-1) + 1)]


def _warnings(parts: Sequence[PartBreakdown]) -> list[Warning]:
    missing = [part.label for part in parts if part.metrics["average_precision"].value is None]
    if not missing or len(missing) == len(parts):
        return []  # all: `undefined` says so
    message = f"average_precision of {', '.join(missing)}: no value, because no image has a box of this class"
    return [Warning(code="undefined_metric", message=message, evidence={"metrics": missing})]


def _plot(names: Sequence[str], classes: Sequence[ClassClaims]) -> str | None:
    """Greatest precision from a recall on, a line for each of the first classes; None without boxes."""
    curves = [(name, curve) for name, one in zip(names, classes, strict=False) if (curve := one.curve())]
    if not curves:
        return None
    series = [Series(name, tuple(_steps(curve)), "steps") for name, curve in curves[:CURVES]]
    title = "Precision over recall, IoU 0.5"
    return draw([Panel(title, "recall", "precision", tuple(series), (0, 1), (0, 1))])


def _steps(curve: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """The left ends of steps: a precision holds from the recall before to its own."""
    before = 0.0
    for recall, precision in curve:
        if recall > before:
            yield before, precision
            before = recall
    yield before, 0.0
    yield 1.0, 0.0


TABLE = Detections()
