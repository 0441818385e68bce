"""The published numbers against a second transcript of the paper, cell by cell.

`tests/vectors/published.csv` was taken from the paper's text, with models and columns as they are printed
there; AlexNet's errors come from the authors of ImageNet-C.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.attacks.corruptions.imaging.imagenet_c import FIFTEEN
from assay.workers.published.analyses import EIGENVALUES, TABLE_13, UNITS
from assay.workers.published.corruptions import CORRUPTION_TABLES
from assay.workers.published.imagenet import PAPER, SEGMENTED, SEGMENTED_CORRUPTED, TABLES
from assay.workers.published.language import ACCURACIES, PERPLEXITIES
from assay.workers.published.sequences import DUAL, PRIMAL

Cell = tuple[str, str, str]
VECTORS = Path(__file__).parents[2] / "vectors" / "published.csv"
DEIT = VECTORS.with_name("published_images.csv")
PAPERS = {PRIMAL: "primal", DUAL: "dual"}
ATTACKS = {
    "pgd": "PGD",
    "fgsm": "FGSM",
    "spsa": "SPSA",
    "sparse_l1_descent": "SLD",
    "carlini_wagner": "CW",
    "uniform_noise": "Noise",
    "autoattack": "AutoAttack",
    "clean": "IN-1K",
    "corruptions": "IN-C",
}
SETS = {"imagenet": "IN-1K", "imagenet_a": "IN-A", "imagenet_r": "IN-R", "imagenet_o": "IN-O"}
METRICS = {"top1": "Top-1", "top5": "Top-5", "aupr": "AUPR", "corrupted_top1": "Top-1", "mce": "mCE"}
CORRUPTIONS = {name: name.replace("_", " ").title() for name in FIFTEEN} | {
    "jpeg_compression": "JPEG Compression"
}
# The attention of the language model below a classifier.
ATTENTIONS = {
    "SymSMoE": "symmetric",
    "RPC-SymSMoE": "rpc_symmetric",
    "SMoE": "softmax",
    "RPC-SMoE": "rpc_asymmetric",
    "Baseline-LM": "softmax",
    "RPC-LM": "rpc_asymmetric",
}
PARTS = {
    "sst2/dev": "SST-2 Valid Acc",
    "imdb/test": "IMDB Valid Acc",
    "sst5/dev": "Valid Acc",
    "sst5/test": "Test Acc",
}
EFFICIENCY = (
    "Flop/Sample",
    "Sec/Sample (Training)",
    "Sec/Sample (Test)",
    "Memory (Training)",
    "Memory (Test)",
    "Parameters",
)


def printed() -> dict[Cell, float]:
    """By place, model and column; without the units that some have."""
    with VECTORS.open(newline="") as file:
        rows = [(*row[:3], float(row[3].rstrip("MB"))) for row in csv.reader(file) if row[0] != "place"]
    cells = {(place, _model(model), column): value for place, model, column, value in rows}
    assert len(cells) == len(rows)
    return {cell: value for cell, value in cells.items() if cell[0] != "ImageNet-C"}


def _model(name: str) -> str:
    # Table 13 leaves a word out.
    return name.removesuffix(" (baseline)").replace("(2iter/layer)", "(2iter/all-layer)")


def left_out(cell: Cell) -> bool:
    """Square's epsilon is not stated, errors follow from accuracies, no row is of a training set."""
    place, _, column = cell
    return place == "table 5" or (place == "table 4" and column.endswith("mCE")) or "Train Acc" in column


def stated() -> Iterator[tuple[Cell, float]]:
    """References of measured rows, by the paper's names."""
    yield from _of_images()
    yield from _of_segmentation()
    yield from _of_text()
    yield from _of_analyses()


def _of_images() -> Iterator[tuple[Cell, float]]:
    for place, attacked, rows in (*TABLES, *CORRUPTION_TABLES):
        if attacked.source != PAPER:
            continue
        for model, values in rows.items():
            for metric, value in zip(attacked.metrics, values, strict=True):
                corruption, _, rest = metric.rpartition("/")
                what = CORRUPTIONS.get(corruption) or ATTACKS.get(attacked.name) or SETS[attacked.data]
                yield ("table 4" if corruption else place, model, f"{what} {METRICS[rest]}"), value


def _of_segmentation() -> Iterator[tuple[Cell, float]]:
    for what, segmented in (("ADE20K", SEGMENTED), ("Corrupted ADE20K", SEGMENTED_CORRUPTED)):
        for model, (accuracy, iou) in segmented.items():
            yield ("table 6", model, f"{what} Mean Acc."), accuracy
            yield ("table 6", model, f"{what} Mean IOU"), iou


def _of_text() -> Iterator[tuple[Cell, float]]:
    for part, perplexities in PERPLEXITIES.items():
        for model, (clean, attacked) in perplexities.items():
            yield ("table 3", model, f"Wikitext-103 {part.title()}-ppl"), clean
            yield ("table 3", model, f"Attacked Wikitext-103 {part.title()}-ppl"), attacked
    for (part, _), (place, model, percent) in ACCURACIES.items():
        yield (place, model, PARTS[part]), percent


def _of_analyses() -> Iterator[tuple[Cell, float]]:
    for model, values in TABLE_13.items():
        for column, value in zip(EFFICIENCY, values, strict=True):
            yield ("table 13", model, column), value
    for metric, value in EIGENVALUES.items():
        yield ("section 2.2.2", "ViT-tiny", f"absolute eigenvalues {metric.split('_')[1]}"), value


@pytest.mark.parametrize("place", sorted({place for place, *_ in printed()} - {"table 5"}))
def test_every_cell_is_the_papers_and_every_cell_of_the_paper_is_there(place: str) -> None:
    ours: dict[Cell, set[float]] = {}
    for cell, value in stated():
        ours.setdefault(cell, set()).add(value)
    theirs = {cell: {value} for cell, value in printed().items() if not left_out(cell)}
    assert {cell: v for cell, v in ours.items() if cell[0] == place} == {
        cell: v for cell, v in theirs.items() if cell[0] == place
    }
    assert {cell[0] for cell in ours} == {cell[0] for cell in theirs}


def test_models_and_columns_have_the_meaning_that_they_are_printed_with() -> None:
    assert tuple(UNITS) == (
        "multiply_adds", "train_seconds", "test_seconds", "train_memory", "test_memory", "parameters"
    )  # fmt: skip
    assert {model: attention for (_, attention), (_, model, _) in ACCURACIES.items()} == ATTENTIONS


def test_accuracies_of_the_other_papers_are_the_printed_ones_but_for_imagenet_100() -> None:
    """`tests/vectors/published_images.csv` was taken from the papers' texts by a program."""
    with DEIT.open(newline="", encoding="utf-8") as file:
        theirs = {
            (row["place"], row["model"], row["column"]): float(row["printed"]) for row in csv.DictReader(file)
        }
    ours = {
        (f"{PAPERS[attacked.source]} {place}", model, f"ImageNet-1K {METRICS[metric]}"): value
        for place, attacked, rows in TABLES
        if attacked.source in PAPERS and attacked.name == "clean"
        for model, values in rows.items()
        for metric, value in zip(attacked.metrics, values, strict=True)
    }
    assert ours == {cell: value for cell, value in theirs.items() if "ImageNet-100" not in cell[2]}
    assert len(theirs) == len(ours) + 2
