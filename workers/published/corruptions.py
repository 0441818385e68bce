"""Published robustness of RPC-Attention's models to the corruptions of ImageNet-C, as tables.

Source: Teo and Nguyen 2024, "Unveiling the Hidden Structure of Self-Attention via Kernel Principal Component
Analysis" (NeurIPS): tables 1 and 7, and the appendix's accuracy under each corruption, in percent, on the
stored ImageNet-C. Freshly corrupted images are another test set: a protocol and a note say so.
"""

from __future__ import annotations

from collections.abc import Mapping

from assay.service.contract.records import PlannedEvaluation
from assay.service.contract.results import Reference
from assay.service.contract.stored_specs import EvaluationItem, Params
from assay.workers.published.imagenet import BASE_MODELS, BOTH, MODELS, PAPER, TINY_MODELS
from assay.workers.published.match import MeasuredRow, PublishedEvaluation, PublishedTable, image_references

__all__ = ["corruptions"]

# Means over severities on the stored ImageNet-C, by its authors.
ALEXNET_ERRORS = {
    "gaussian_noise": 0.886428, "shot_noise": 0.894468, "impulse_noise": 0.922640, "defocus_blur": 0.819880,
    "glass_blur": 0.826268, "motion_blur": 0.785948, "zoom_blur": 0.798360, "snow": 0.866816,
    "frost": 0.826572, "fog": 0.819324, "brightness": 0.564592, "contrast": 0.853204,
    "elastic_transform": 0.646056, "pixelate": 0.717840, "jpeg_compression": 0.606500,
}  # fmt: skip
ALEXNET_SIZE = 224
# Sets of AlexNet's errors: ImageNet-C, and ImageNet's validation set, corrupted here.
OF_ALEXNET = frozenset({"imagenet", "imagenet_c"})

WHOLE = ("corrupted_top1", "mce")
STORED = PublishedEvaluation(
    "corruptions",
    {"source": "stored"},
    PAPER,
    protocols=BOTH,
    protocol="stored ImageNet-C",
    data="imagenet_c",
)
GENERATED = STORED._replace(
    params={"source": "generated", "constants": "imagenet_c"},
    data="imagenet",
    note="measured on the stored ImageNet-C, another test set than this row's regenerated images",
)
ACCURACY_AND_MCE = {
    ("table 1", TINY_MODELS): (
        (41.45, 74.75),
        (42.35, 73.58),
        (42.43, 73.43),
        (42.76, 73.03),
        (41.64, 74.52),
    ),
    ("table 7", BASE_MODELS): ((58.88, 52.57), (59.29, 52.00)),
}
# SymViT, 2iter/all-layer, and 4, 5 and 6 iterations in layer 1.
BY_CORRUPTION = {
    "gaussian_noise": (40.97, 41.64, 42.22, 41.67, 42.51),
    "shot_noise": (38.83, 39.20, 39.52, 39.03, 39.71),
    "impulse_noise": (38.56, 38.98, 40.24, 39.46, 40.33),
    "defocus_blur": (35.47, 35.61, 35.54, 35.26, 36.38),
    "glass_blur": (27.79, 28.12, 28.48, 27.87, 28.05),
    "motion_blur": (40.47, 40.00, 41.72, 41.81, 42.22),
    "zoom_blur": (30.69, 29.49, 29.97, 30.20, 30.48),
    "snow": (38.27, 37.87, 38.75, 39.12, 38.90),
    "frost": (44.55, 45.06, 45.93, 46.24, 46.27),
    "fog": (42.72, 45.49, 46.03, 46.59, 46.40),
    "brightness": (63.21, 62.97, 63.74, 64.19, 64.31),
    "contrast": (50.25, 49.59, 49.30, 49.84, 50.18),
    "elastic_transform": (44.26, 44.52, 44.68, 44.84, 44.72),
    "pixelate": (39.36, 39.81, 41.13, 41.86, 42.25),
    "jpeg_compression": (46.28, 46.23, 47.92, 48.41, 48.63),
}
EACH = tuple(f"{name}/top1" for name in BY_CORRUPTION)  # Mean over severities, in the breakdown
ORDER = (TINY_MODELS[0], TINY_MODELS[4], *TINY_MODELS[1:4])


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
    columns = dict(zip(ORDER, zip(*BY_CORRUPTION.values(), strict=True), strict=True))
    each: PublishedTable = ("accuracy by corruption", attacked._replace(metrics=EACH), columns)
    whole: list[PublishedTable] = [
        (table, attacked._replace(metrics=WHOLE), dict(zip(models, values, strict=True)))
        for (table, models), values in ACCURACY_AND_MCE.items()
    ]
    return [*whole, each]


CORRUPTION_TABLES = [*_tables(STORED), *_tables(GENERATED)]


def corruptions(row: MeasuredRow) -> list[Reference]:
    """Accuracy and errors of classifiers under the corruptions of ImageNet-C."""
    return image_references(CORRUPTION_TABLES, MODELS, row)
