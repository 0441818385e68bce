"""Published robustness of classifiers to the corruptions of ImageNet-C: `corruptions.json`."""

from __future__ import annotations

from collections.abc import Mapping

from assay.service.contract.records import PlannedEvaluation
from assay.service.contract.results import Reference
from assay.service.contract.stored_specs import EvaluationItem, Params
from assay.workers.published.imagenet import MODELS, evaluations
from assay.workers.published.match import (
    MeasuredRow,
    PublishedEvaluation,
    PublishedTable,
    image_references,
    stated,
)

__all__ = ["corruptions"]

_STATED = stated("corruptions.json")
ALEXNET_ERRORS: Mapping[str, float] = _STATED["alexnet_errors"]
ALEXNET_SIZE = 224
# Sets of AlexNet's errors: ImageNet-C, and ImageNet's validation set, corrupted here.
OF_ALEXNET = frozenset({"imagenet", "imagenet_c"})

WHOLE = ("corrupted_top1", "mce")
EACH = tuple(f"{name}/top1" for name in _STATED["by_corruption"]["rows"])  # Mean over severities


def with_constants(item: EvaluationItem, planned: PlannedEvaluation) -> EvaluationItem:
    """An evaluation with its plan's constants of generated corruptions."""
    chosen = planned.get("constants")
    return item if chosen is None else {**item, "params": {**item["params"], "constants": chosen}}


def baseline_errors(
    known_as: str | None, params: Params, image_size: int | None
) -> Mapping[str, float] | None:
    """Errors that a data set's mean corruption error is relative to; None without any."""
    generated = {"constants": "imagenet_c", "as_files": True}
    alike = params.get("source") == "stored" or (
        image_size == ALEXNET_SIZE and all(params.get(name) == value for name, value in generated.items())
    )
    return ALEXNET_ERRORS if known_as in OF_ALEXNET and alike else None


def _tables(attacked: PublishedEvaluation) -> list[PublishedTable]:
    models, rows = _STATED["by_corruption"].values()
    columns = dict(zip(models, zip(*rows.values(), strict=True), strict=True))
    whole = attacked._replace(metrics=WHOLE)
    return [
        *((table, whole, values) for table, values in _STATED["accuracy_and_mce"].items()),
        ("accuracy by corruption", attacked._replace(metrics=EACH), columns),
    ]


CORRUPTION_TABLES = [
    table for attacked in evaluations(_STATED["evaluations"]).values() for table in _tables(attacked)
]


def corruptions(row: MeasuredRow) -> list[Reference]:
    """Accuracy and errors of classifiers under the corruptions of ImageNet-C."""
    return image_references(CORRUPTION_TABLES, MODELS, row)
