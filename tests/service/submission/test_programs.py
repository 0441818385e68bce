"""What an uploaded program is for decides which jobs it can have."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from assay.service.catalog.catalog import load
from assay.service.contract.errors import InvalidSpec
from assay.service.contract.stored_specs import ComponentReference
from assay.service.contract.weights.options import WeightsReading
from assay.service.submission.validate import validate


@dataclass(frozen=True)
class Upload:
    """A checked program, as the database has it."""

    facts: dict[str, int]
    task: str | None
    gradients: bool = True
    state: str = "ready"
    reason: str = ""
    sha256: str = "0" * 64
    dtypes: tuple[str, ...] = ("float32",)
    foreign: bool = False
    model: ComponentReference = field(default_factory=lambda: {"name": "exported", "params": {}})
    reading: WeightsReading = field(default_factory=lambda: {"normalization": None, "positions": None})


SEGMENTING = Upload({"classes": 5, "channels": 3, "image_size": 32}, "segmentation")
UNKNOWN = Upload({}, None, state="checking")


def problems(upload: Upload, evaluations: list[dict[str, Any]], data: str = "shapes") -> dict[str, str]:
    body = {
        "kind": "evaluate",
        "model": {"name": "exported", "weights": {"checkpoint": "mine"}},
        "data": {"name": data},
        "evaluations": evaluations,
    }
    try:
        validate(load(), body, find_checkpoint=lambda _: upload)
    except InvalidSpec as found:
        return {".".join(map(str, detail.loc)): detail.message for detail in found.details}
    return {}


def windows(size: int) -> dict[str, Any]:
    return {"name": "sliding_window", "params": {"window": size, "stride": 16}}


@pytest.mark.parametrize(
    "name", ["clean", "segpgd", "segmentation_pgd", "segmentation_apgd", "sea", "corruptions"]
)
def test_a_program_for_segmentation_has_all_that_is_for_segmentation(name: str) -> None:
    assert problems(SEGMENTING, [{"name": name}]) == {}


def test_windows_have_the_size_of_the_program() -> None:
    assert problems(SEGMENTING, [windows(32)]) == {}
    assert problems(UNKNOWN, [windows(48)]) == {}
    found = problems(SEGMENTING, [windows(48)])["evaluations.0.params"]
    assert found.startswith("window must be the image size of the exported program, which takes no other (")


def test_what_is_for_another_task_is_refused() -> None:
    found = problems(SEGMENTING, [{"name": "pgd"}])
    message = "'pgd' is for classification and series, the model 'exported' is for segmentation"
    assert found == {"evaluations.0.name": message}
    digits = Upload({"classes": 10, "channels": 1, "image_size": 32}, "segmentation")
    source = {"name": "transfer", "params": {"job": "checkpoint:mine"}}
    found = problems(digits, [source], data="digits")
    message = "'digits' is data for classification, the model 'exported' is for segmentation"
    assert found["data.name"] == message
    assert found["evaluations.0.params.job"] == "the exported program is for segmentation"


CLASSIFYING = Upload({"classes": 2, "channels": 20, "length": 12}, "sequence", gradients=False)
PREDICTING = Upload({"classes": 20, "channels": 20, "length": 12}, "language", gradients=False)


@pytest.mark.parametrize(
    ("upload", "names", "data"),
    [
        (CLASSIFYING, ["clean", "top1", "token_noise", "deepwordbug", "pruthi", "homoglyph_swaps"], "sst"),
        (PREDICTING, ["perplexity", "word_swap"], "pydoc"),
    ],
)
def test_a_program_for_texts_has_what_needs_no_gradients(upload: Upload, names: list[str], data: str) -> None:
    assert problems(upload, [{"name": name} for name in names], data) == {}


@pytest.mark.parametrize("upload", [CLASSIFYING, PREDICTING, UNKNOWN])
def test_attacks_by_gradients_of_words_are_refused_with_the_reason(upload: Upload) -> None:
    names, data = ["hotflip", "gcg"], "sst"
    if upload is PREDICTING:
        names, data = ["gradient_word_swap", "forced_continuation"], "pydoc"
    params = {"forced_continuation": {"target": "the"}}
    found = problems(upload, [{"name": name, "params": params.get(name, {})} for name in names], data)
    message = "needs the layer that makes words vectors (a method word_vectors), which the model 'exported'"
    assert found == {
        f"evaluations.{place}.name": f"{name!r} {message} does not offer" for place, name in enumerate(names)
    }


def test_texts_of_another_task_pairs_and_other_sizes_are_refused() -> None:
    found = problems(CLASSIFYING, [{"name": "perplexity"}], "pydoc")
    assert found["data.name"] == "'pydoc' is data for language, the model 'exported' is for sequence"
    found = problems(CLASSIFYING, [{"name": "clean"}], "lra_retrieval")
    assert found["model.params"].startswith("an exported program reads one text, the data are pairs of texts")
    found = problems(Upload({"classes": 10, "channels": 20, "length": 12}, "sequence"), [CLEAN], "imdb")
    assert found == {"data.name": "'imdb' has 2 classes, the model is made for the 10 of its weights"}
    found = problems(PREDICTING, [{"name": "perplexity", "params": {"length": 13}}], "pydoc")
    assert found["evaluations.0.params"].startswith("length must not be larger than the model's")
    assert problems(PREDICTING, [{"name": "perplexity", "params": {"length": 12}}], "pydoc") == {}


CLEAN = {"name": "clean"}
