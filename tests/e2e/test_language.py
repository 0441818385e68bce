"""Language through the real service: a model of Python's help pages, and a classifier that begins with it."""

from __future__ import annotations

import csv
import io
import random
from pathlib import Path

import pytest

from assay.service.contract.errors import InvalidSpec
from tests.e2e.jobs import finished, outcomes
from tests.e2e.running import RunningService

SIZES = {"width": 32, "depth": 1, "heads": 2, "hidden": 64, "length": 32, "dropout": 0.0}
TRAINING = {
    "kind": "train",
    "model": {"name": "lm", "params": SIZES},
    "data": {"name": "pydoc"},
    "recipe": {"name": "small_lm", "params": {"epochs": 1, "learning_rate": 0.003}},
    "execution": {"device": "cpu", "batch_size": 32},
}
SENTENCES = {"name": "sst", "params": {"folder": "judged", "vocabulary": "pydoc"}}


def write_sentences(root: Path) -> None:
    """Sentences of the help pages' words: "class" is in those of one kind, "module" in the others."""
    draws = random.Random(0)
    (root / "judged").mkdir(exist_ok=True)
    for part, count in (("train", 64), ("test", 24)):
        rows = []
        for number in range(count):
            words = draws.choices(["the", "a", "is", "of", "object", "name"], k=5)
            words.insert(draws.randrange(5), ("class", "module")[number % 2])
            rows.append(f"{' '.join(words)}\t{number % 2}\n")
        (root / "judged" / f"sst2.{part}.tsv").write_text("".join(rows))


@pytest.mark.costly
def test_train_measure_and_fine_tune(shared: RunningService, data_root: Path, tmp_path: Path) -> None:
    client = shared.client
    write_sentences(data_root)
    training = client.submit(TRAINING).id
    finished(client, training)
    windows = [{"window": "blocks"}, {"window": "strided", "stride": 16}]
    evaluating = {
        "kind": "evaluate",
        "model": {"name": "lm", "weights": {"job": training}},
        "data": {"name": "pydoc"},
        "evaluations": [{"name": "perplexity", "params": params} for params in windows],
    }
    with pytest.raises(InvalidSpec, match="'clean' is for classification and segmentation and sequence"):
        client.submit({**evaluating, "evaluations": [{"name": "clean"}]})
    job_id = client.submit(evaluating).id
    finished(client, job_id)
    [trained], (blocks, strided) = client.results(training).evaluations, client.results(job_id).evaluations
    assert trained.metrics == blocks.metrics
    words = 2000  # about: those of the vocabulary, which a model without training finds equally likely
    for metric in (blocks.metrics["perplexity"], strided.metrics["perplexity"]):
        assert metric.ci_low < metric.value < metric.ci_high < words / 4
        assert (metric.n, metric.ci_method, metric.higher_is_better) == (15, "studentised", False)
    table = outcomes(client, job_id, tmp_path)["outcomes-000-perplexity.csv"]
    rows = list(csv.DictReader(io.StringIO(table)))
    assert set(rows[0]) == {"id", "nll", "tokens", "unknown", "forward", "backward"}
    assert [row["id"] for row in rows] == sorted(row["id"] for row in rows)

    body = {
        "kind": "train",
        "model": {"name": "text_classifier", "weights": {"job": training, "part": "backbone"}},
        "data": SENTENCES,
        "recipe": {"name": "finetune_text", "params": {"epochs": 8, "learning_rate": 0.01}},
        "execution": {"device": "cpu", "batch_size": 16},
    }
    other = {"name": "sst", "params": {"folder": "judged"}}
    refused = client.submit({**body, "data": other}).id
    tuning = client.submit(body).id
    finished(client, tuning)
    [tuned] = client.results(tuning).evaluations
    assert tuned.metrics["top1"].value >= 0.9
    assert tuned.metrics["top1"].ci_method == "wilson"
    failed = client.wait(refused, timeout_seconds=120, poll_seconds=0.1)
    assert failed.state == "failed"
    assert "vocabulary" in failed.error.message
