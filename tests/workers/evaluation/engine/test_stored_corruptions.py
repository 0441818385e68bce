"""The evaluation of stored corrupted images: each flag is the answer to its file."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from assay.models.layers.layers import Classifier
from assay.service.contract.corruption_cells import Cell
from assay.workers.catalog import build
from assay.workers.evaluation.engine.ledger import ExampleOutcomes
from assay.workers.evaluation.engine.stored_corruptions import StoredCells
from tests.support.shards import Given, shard

N = 20
IDS = [f"digit-{number:04d}" for number in range(N)]
PARAMS = {"corruptions": ["fog", "contrast"], "severities": [4, 2], "source": "stored"}
CELLS: list[Cell] = [("fog", 2), ("fog", 4), ("contrast", 2), ("contrast", 4)]


def darkened(digits: tuple[Tensor, Tensor], cell: Cell) -> Tensor:
    """Stands for the files of a cell."""
    return digits[0][:N] * (0.9 - 0.2 * CELLS.index(cell))


def test_each_flag_is_the_answer_to_that_file(model: Classifier, digits: tuple[Tensor, Tensor]) -> None:
    def images_of(cell: Cell) -> Callable[[Sequence[int]], Tensor]:
        return lambda rows: darkened(digits, cell)[list(rows)]

    evaluation = build("evaluation", "corruptions", PARAMS)()
    assert isinstance(evaluation, StoredCells)
    told: list[int] = []
    data = Given(IDS, labels=digits[1], cells=images_of)
    outcomes = evaluation.measure(shard(model, data, batch_size=8, progress=told.append))
    columns = outcomes.columns()
    for number, cell in enumerate(CELLS):
        with torch.no_grad():
            right = model(darkened(digits, cell)).argmax(1) == digits[1][:N]
        assert [str(flags)[number] == "1" for flags in columns["corrupted"]] == right.tolist()
    assert {flag for flags in columns["corrupted"] for flag in str(flags)} == {"0", "1"}
    assert columns["id"] == IDS
    assert columns["label"] == digits[1][:N].tolist()
    assert columns["forward"] == [4] * N
    assert columns["backward"] == [0] * N
    assert told == sorted(told)
    assert told[-1] == N


def test_logits_that_are_not_finite_are_counted_and_wrong(
    model: Classifier, digits: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluation = build("evaluation", "corruptions", PARAMS)()
    monkeypatch.setattr(model, "forward", lambda images: torch.full((len(images), 10), torch.nan))
    data = Given(IDS, labels=digits[1], cells=lambda cell: lambda rows: digits[0][list(rows)])
    outcomes = evaluation.measure(shard(model, data, batch_size=8))
    assert outcomes.evidence() == {"nonfinite": 4 * N}
    assert not outcomes.right.any()


def test_without_a_source_images_are_made(model: Classifier, digits: tuple[Tensor, Tensor]) -> None:
    evaluation = build("evaluation", "corruptions", PARAMS | {"source": "generated"})()
    data = Given(IDS, labels=digits[1], images=lambda rows: digits[0][list(rows)])
    outcomes = evaluation.measure(shard(model, data, batch_size=8))
    assert isinstance(outcomes, ExampleOutcomes)
