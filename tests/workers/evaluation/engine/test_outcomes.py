"""The files of outcomes: which examples are in them, and that there are none unless asked for."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import safetensors.torch
import torch

from assay.workers.evaluation.engine.analysis import Measured
from assay.workers.evaluation.engine.ledger import ExampleOutcomes
from assay.workers.evaluation.engine.outcomes import OutcomeFile
from assay.workers.evaluation.engine.segmentation.attacked import AttackedPixels
from assay.workers.evaluation.engine.text.outcomes import TextOutcomes, TextRow

PASSES: dict[str, Any] = {"forward": torch.ones(4).long(), "backward": torch.ones(4).long()}
IDS = ("a", "b", "c", "d")


def header(file: OutcomeFile) -> dict[str, Any]:
    """The header's own entries, read as JSON."""
    length = int.from_bytes(file.content[:8], "little")
    metadata = json.loads(file.content[8 : 8 + length])["__metadata__"]
    return {key: json.loads(text) for key, text in metadata.items()}


def test_adversarial_images_are_those_that_an_attack_broke() -> None:
    right, left = torch.tensor([True, True, False, True]), torch.tensor([True, False, False, False])
    numbers = torch.arange(4)
    outcomes = ExampleOutcomes(
        ids=IDS, labels=numbers, prediction=numbers + 10, correct=left, correct5=left, clean_correct=right,
        loss=torch.zeros(4), adversarial=numbers.float().view(4, 1, 1, 1), **PASSES,
    )  # fmt: skip
    (file,) = outcomes.files()
    assert (file.stem, file.suffix) == ("adversarial", ".safetensors")
    tensors = safetensors.torch.load(file.content)
    assert tensors["images"].flatten().tolist() == [1, 3]
    assert tensors["labels"].tolist() == [1, 3]
    assert tensors["predictions"].tolist() == [11, 13]
    assert header(file) == {"ids": ["b", "d"]}
    assert list(replace(outcomes, adversarial=None).files()) == []


def test_attacked_pixels_are_those_of_images_that_a_loss_made_worse() -> None:
    # Right pixels of each image: unattacked, under mce, under js.
    right = torch.tensor([[5, 5, 5], [5, 2, 4], [5, 3, 1], [0, 0, 0]])[..., None]
    outcomes = AttackedPixels(
        ids=IDS, names=("clean", "mce", "js"),
        intersection=right, target=torch.full((4, 1), 5), predicted=right,
        adversarial=torch.arange(4.0).view(4, 1, 1, 1), maps=torch.arange(4, dtype=torch.uint8).view(4, 1, 1),
        **PASSES,
    )  # fmt: skip
    (file,) = outcomes.files()
    tensors = safetensors.torch.load(file.content)
    assert tensors["images"].flatten().tolist() == tensors["label_maps"].flatten().tolist() == [1, 2]
    assert header(file) == {"ids": ["b", "c"], "losses": ["mce", "js"]}
    assert list(replace(outcomes, adversarial=None, maps=None).files()) == []


def test_adversarial_texts_are_a_file_where_asked_for_even_without_any() -> None:
    row = TextRow(
        id="a", label=0, prediction=0, status="failed", loss=0.1, queries=1, passes=1, words=1, changed=0,
        nonfinite=False, original="x", text="x",
    )  # fmt: skip
    assert list(TextOutcomes((row,)).files()) == []
    assert list(TextOutcomes((row,), keep_adversarial=True).files()) == [
        OutcomeFile("adversarial", ".jsonl", b"")
    ]
    broken = TextOutcomes((replace(row, status="succeeded", text="y"),), keep_adversarial=True)
    (file,) = broken.files()
    assert json.loads(file.content)["text"] == "y"


def test_only_what_an_analysis_measured_has_a_summary_of_its_own() -> None:
    measured = Measured(IDS, {}, **PASSES)
    assert measured.analysis
    assert list(measured.files()) == []
    assert not TextOutcomes(()).analysis
