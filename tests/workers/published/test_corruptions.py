"""AlexNet's errors and the paper's accuracies under corruptions: what is printed, and where it belongs."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from assay.attacks.corruptions.imaging.imagenet_c import FIFTEEN as NAMES
from assay.workers.published.corruptions import ALEXNET_ERRORS, baseline_errors

VECTORS = Path(__file__).parents[2] / "vectors" / "published.csv"
# Where accuracy and error of a table contradict each other.
CONTRADICTIONS = {
    ("contrast", "SymViT"),
    ("brightness", "RPC-SymViT (2iter/all-layer)"),
    ("motion_blur", "RPC-SymViT (2iter/all-layer)"),
}


def test_alexnets_corruptions_are_the_fifteen() -> None:
    assert tuple(ALEXNET_ERRORS) == NAMES


def test_alexnets_errors_belong_to_imagenet_and_its_stored_corruptions_alone() -> None:
    generated = {"source": "generated", "constants": "imagenet_c", "as_files": True}
    for params in ({"source": "stored"}, generated):
        for name in ("imagenet", "imagenet_c"):
            assert baseline_errors(name, params, 224) == ALEXNET_ERRORS
        assert baseline_errors("imagenet_r", params, 224) is baseline_errors(None, params, 224) is None
    for other in ({"constants": "imagecorruptions"}, {"as_files": False}):
        assert baseline_errors("imagenet", {**generated, **other}, 224) is None
    assert baseline_errors("imagenet", generated, 384) is None


def published(place: str) -> dict[tuple[str, str], float]:
    """By model and column."""
    with VECTORS.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["place"] == place]
    return {(row["model"], row["column"]): float(row["printed"]) for row in rows}


def test_alexnets_errors_are_the_authors() -> None:
    assert {name: error for (_, name), error in published("ImageNet-C").items()} == {
        name.split("_")[0]: error for name, error in ALEXNET_ERRORS.items()
    }


def test_the_papers_accuracies_and_errors_of_each_corruption_agree_by_alexnets() -> None:
    cells = published("table 4")
    models = {model for model, _ in cells}
    assert len(models) == 5
    for name, alexnet in ALEXNET_ERRORS.items():
        printed = "JPEG Compression" if name == "jpeg_compression" else name.replace("_", " ").title()
        for model in models:
            error = (100 - cells[model, f"{printed} Top-1"]) / alexnet
            agrees = error == pytest.approx(cells[model, f"{printed} mCE"], abs=0.03)
            assert agrees is ((name, model) not in CONTRADICTIONS), (name, model)
