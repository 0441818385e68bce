"""Weights that a user brings, over HTTP through the real service: uploaded, checked, attacked."""

from __future__ import annotations

from pathlib import Path

import pytest
import safetensors.torch

from assay.service.checkpoints.wire import Checkpoint
from assay.service.client import AssayClient
from assay.service.contract.errors import InvalidSpec, InvalidState
from tests.e2e.jobs import SHAPE, attacking, finished, outcomes, pgd
from tests.e2e.running import RunningService

MODEL = {"name": "symvit", "params": SHAPE}
EVALUATIONS = [{"name": "clean"}, pgd("8/255", steps=3)]


@pytest.fixture
def client(shared: RunningService) -> AssayClient:
    return shared.client


@pytest.fixture(scope="module")
def weights_file(
    shared: RunningService, trained: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    """A training job and its weights."""
    folder = tmp_path_factory.mktemp("trained")
    return trained, shared.client.download(trained, "weights.safetensors", folder)


def uploaded(client: AssayClient, name: str, file: Path, model: object = None) -> Checkpoint:
    client.upload_checkpoint(name, file, model=model)
    return client.wait_for_checkpoint(name, timeout_seconds=120)


@pytest.mark.costly
def test_a_training_jobs_weights_come_back_as_a_checkpoint(
    client: AssayClient, weights_file: tuple[str, Path], tmp_path: Path
) -> None:
    job_id, file = weights_file
    first = client.upload_checkpoint("ours", file)
    spec = attacking(None, EVALUATIONS)
    spec["model"] = {"name": "symvit", "weights": {"checkpoint": "ours"}}
    mine = client.submit(spec).id  # whether or not the check is over
    own = client.submit(attacking(job_id, EVALUATIONS)).id
    finished(client, mine)
    finished(client, own)
    ready = client.checkpoint("ours")
    assert (ready.state, ready.layout, ready.classes, ready.channels) == ("ready", "assay", 10, 1)
    assert ready.model["params"] | SHAPE == ready.model["params"]
    assert outcomes(client, mine, tmp_path / "mine") == outcomes(client, own, tmp_path / "own")
    ours, theirs = client.results(mine).provenance, client.results(own).provenance
    assert ours is not None
    assert theirs is not None
    assert ours.weights_sha256 == theirs.weights_sha256
    stated = {"normalization": None, "positions": None}
    assert ours.spec["model"]["weights"] == {"checkpoint": "ours", "sha256": first.sha256, **stated}
    assert client.upload_checkpoint("ours", file).state == "ready"
    client.delete_checkpoint("ours")
    assert "ours" not in [one.name for one in client.checkpoints()]


@pytest.mark.costly
def test_weights_with_timms_names_are_attacked(
    client: AssayClient, weights_file: tuple[str, Path], tmp_path: Path
) -> None:
    job_id, file = weights_file
    tensors = safetensors.torch.load_file(file)
    bare = {
        f"model.{key.removeprefix('backbone.')}": t
        for key, t in tensors.items()
        if key.startswith("backbone.")
    }
    path = tmp_path / "deit.safetensors"
    safetensors.torch.save_file(bare, path)
    assert uploaded(client, "deit", path, MODEL).layout == "deit"
    spec = attacking(None, EVALUATIONS)
    spec["model"] = {"name": "symvit", "weights": {"checkpoint": "deit"}}
    mine, own = client.submit(spec).id, client.submit(attacking(job_id, EVALUATIONS)).id
    finished(client, mine)
    finished(client, own)
    assert outcomes(client, mine, tmp_path / "mine") == outcomes(client, own, tmp_path / "own")
    for job, expected in ((mine, True), (own, False)):
        found = [[warning.code for warning in row.warnings] for row in client.results(job).evaluations]
        assert ["foreign_normalization" in codes for codes in found] == [expected] * len(EVALUATIONS)


@pytest.mark.costly
def test_bad_files_are_refused_or_rejected_with_the_reason(
    client: AssayClient, weights_file: tuple[str, Path], tmp_path: Path
) -> None:
    _, file = weights_file
    content, path = file.read_bytes(), tmp_path / "bad.safetensors"
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(InvalidSpec, match="cut off"):
        client.upload_checkpoint("bad", path)
    path.write_bytes(content.replace(b'"shape":[10]', b'"shape":[11]'))
    with pytest.raises(InvalidSpec, match="takes 44 bytes, its offsets 40"):
        client.upload_checkpoint("bad", path)
    with pytest.raises(InvalidSpec, match="the weights are of the model 'symvit'"):
        client.upload_checkpoint("bad", file, model="vit")
    assert "bad" not in [one.name for one in client.checkpoints()]

    tensors = safetensors.torch.load_file(file)
    tensors["backbone.norm.weights"] = tensors.pop("backbone.norm.weight")
    safetensors.torch.save_file(tensors, path)
    rejected = uploaded(client, "bad", path, MODEL)
    assert rejected.state == "rejected"
    assert rejected.faults is not None
    assert rejected.faults.missing == ["backbone.norm.weight"]
    assert rejected.faults.unexpected == ["backbone.norm.weights"]
    spec = attacking(None, EVALUATIONS)
    spec["model"] = {"name": "symvit", "weights": {"checkpoint": "bad"}}
    with pytest.raises(
        InvalidSpec, match="this checkpoint was rejected: the weights do not fit the model: missing"
    ):
        client.submit(spec)
    with pytest.raises(InvalidState, match="another content"):
        client.upload_checkpoint("bad", file)
