"""Token sequences through the real service: train on the generated set, evaluate clean and with noise."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.service.contract.errors import InvalidSpec
from tests.e2e.jobs import finished
from tests.e2e.running import RunningService

MODEL = {"width": 64, "heads": 2, "hidden": 32, "length": 8, "dropout": 0.0, "attention_dropout": 0.0}
DATA = {"name": "recall", "params": {"letters": 2, "train": 5000, "evaluation": 200}}
TRAINING = {
    "kind": "train",
    "model": {"name": "sequence_transformer", "params": MODEL},
    "data": DATA,
    "recipe": {"name": "small_sequence", "params": {"epochs": 1, "learning_rate": 0.005}},
    "execution": {"device": "cpu", "batch_size": 20},
}


@pytest.mark.costly
@pytest.mark.trains
@pytest.mark.parametrize("mode", ["embedded"], indirect=True)
def test_train_and_evaluate(shared: RunningService, data_root: Path) -> None:
    client = shared.client
    training = client.submit(TRAINING).id
    finished(client, training)
    [trained] = client.results(training).evaluations
    noise = [{"name": "token_noise", "params": {"rate": rate}} for rate in (0.0, 0.5)]
    evaluating = {
        "kind": "evaluate",
        "model": {"name": "sequence_transformer", "weights": {"job": training}},
        "data": DATA,
        "evaluations": [{"name": "clean"}, {"name": "top1"}, *noise],
        "execution": {"device": "cpu"},
    }
    for name in ("deepwordbug", "pgd"):
        with pytest.raises(InvalidSpec, match=r"the data have none|'pgd' is for"):
            client.submit({**evaluating, "evaluations": [{"name": name}]})
    job_id = client.submit(evaluating).id
    finished(client, job_id)
    found = [row.metrics["top1"].value for row in client.results(job_id).evaluations]
    chance = 0.55  # of the digits that are there, which may be equal
    assert found[0] == found[1] == found[2] == trained.metrics["top1"].value > chance + 0.1
    assert found[3] < found[0] - 0.05
