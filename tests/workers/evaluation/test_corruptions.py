"""Evaluation under corruptions: its metrics, and independence of batches and ranges."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from imagecorruptions import get_corruption_names
from torch import Tensor

from assay.attacks.corruptions.contrast import contrast
from assay.attacks.corruptions.gaussian_noise import gaussian_noise
from assay.attacks.corruptions.imaging.imagenet_c import FIFTEEN
from assay.models.layers.layers import Classifier
from assay.service.catalog.catalog import load
from assay.workers.catalog import build
from assay.workers.evaluation.engine.ledger import ExampleOutcomes
from tests.support.shards import Given, shard

N = 30
IDS = [f"digit-{number:04d}" for number in range(N)]
CELLS = {"corruptions": ["gaussian_noise", "contrast"], "severities": [5, 1]}


def run(
    model: Classifier,
    digits: tuple[Tensor, Tensor],
    rows: range = range(N),
    *,
    seed: int = 0,
    batch_size: int = 8,
    **params: Any,
) -> ExampleOutcomes:
    data = Given(IDS, images=lambda indices: digits[0][list(indices)], labels=digits[1])
    evaluation = build("evaluation", "corruptions", CELLS | params)()
    outcomes: ExampleOutcomes = evaluation.measure(shard(model, data, rows, seed=seed, batch_size=batch_size))
    return outcomes


def test_the_names_are_those_of_the_catalog_and_fifteen_are_the_default() -> None:
    schema = load().find("evaluation", "corruptions").parameters["properties"]["corruptions"]
    assert schema["items"]["component"] == "corruption"
    assert get_corruption_names("common") == [*FIFTEEN] == schema["default"]
    extra = get_corruption_names("validation")
    assert {*FIFTEEN, *extra} == {component.name for component in load().list("corruption")}


def test_each_flag_is_the_answer_to_that_corrupted_image(
    model: Classifier, digits: tuple[Tensor, Tensor]
) -> None:
    outcomes = run(model, digits)
    assert outcomes.corrupted is not None
    images, labels = digits[0][:N], digits[1][:N]
    order = [
        gaussian_noise(severity=1, constants="cifar_c"),
        gaussian_noise(severity=5, constants="cifar_c"),
        contrast(severity=1, constants="cifar_c"),
        contrast(severity=5, constants="cifar_c"),
    ]
    for cell, kernel in enumerate(order):
        with torch.no_grad():
            right = model(kernel(images, IDS, 0)).argmax(1) == labels
        assert [flags[cell] == "1" for flags in outcomes.corrupted] == right.tolist()
    assert {flag for flags in outcomes.corrupted for flag in flags} == {"0", "1"}
    with torch.no_grad():
        assert torch.equal(outcomes.correct, model(images).argmax(1) == labels)
    assert torch.equal(outcomes.clean_correct, outcomes.correct)
    assert set(outcomes.forward.tolist()) == {5}
    assert outcomes.columns()["corrupted"] == list(outcomes.corrupted)


@pytest.mark.costly
def test_neither_batches_nor_shards_matter_but_the_seed_does(
    model: Classifier, digits: tuple[Tensor, Tensor]
) -> None:
    params: dict[str, Any] = {"corruptions": list(FIFTEEN), "severities": [3, 4]}
    together = run(model, digits, **params).corrupted
    assert together is not None
    assert run(model, digits, batch_size=7, **params).corrupted == together
    first, second = (run(model, digits, part, **params).corrupted for part in (range(11), range(11, N)))
    assert (*(first or ()), *(second or ())) == together
    assert run(model, digits, seed=1, **params).corrupted != together


def test_parameters_are_checked() -> None:
    for wrong in ({"corruptions": []}, {"corruptions": ["rain"]}, {"severities": [0]}, {"severities": []}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            build("evaluation", "corruptions", wrong)
    assert "seed" not in load().find("evaluation", "corruptions").parameters["properties"]
