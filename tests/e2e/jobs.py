"""Small real jobs for the end-to-end tests: a one-layer transformer on handwritten digits."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from assay.service.client import AssayClient
from assay.service.contract.results import Job

SHAPE = {"image_size": 32, "patch_size": 8, "depth": 1, "width": 32, "heads": 2}


def training(epochs: int = 3, *, seed: int = 0, model: str = "symvit", **top: Any) -> dict[str, Any]:
    """A training job of a second or two."""
    return {
        "kind": "train",
        "seed": seed,
        "model": {"name": model, "params": SHAPE},
        "data": {"name": "digits"},
        "recipe": {"name": "small_vit", "params": {"epochs": epochs, "warmup_epochs": 1}},
        "execution": {"device": "cpu", "batch_size": 64},
        **top,
    }


def learning(**top: Any) -> dict[str, Any]:
    """A training job of a second that gets most digits right: high rate, no augmentation."""
    still = {"learning_rate": 4e-3, "shift": 0.0, "rotate": 0.0, "scale": 0.0}
    spec = training(epochs=8, **top)
    spec["recipe"]["params"] |= still
    return spec


def attacking(
    weights: str | None, evaluations: list[dict[str, Any]], *, model: str = "symvit", **top: Any
) -> dict[str, Any]:
    """An evaluation job over trained (or random) weights."""
    reference: dict[str, Any] = (
        {"name": model, "weights": {"job": weights}}
        if weights
        else {
            "name": model,
            "params": SHAPE,
        }
    )
    return {
        "kind": "evaluate",
        "model": reference,
        "data": {"name": "digits"},
        "evaluations": evaluations,
        "execution": {"device": "cpu", "batch_size": 32},
        **top,
    }


def pgd(epsilon: str = "8/255", **params: Any) -> dict[str, Any]:
    """A PGD evaluation."""
    return {"name": "pgd", "params": {"epsilon": epsilon, **params}}


def finished(client: AssayClient, job_id: str, seconds: float = 180) -> Job:
    """Wait for the job and expect success."""
    job = client.wait(job_id, timeout_seconds=seconds, poll_seconds=0.1)
    assert job.state == "succeeded", (job.state, job.error, job.message)
    return job


def outcomes(client: AssayClient, job_id: str, folder: Path) -> dict[str, str]:
    """The per-example outcome tables of a job as text, which is exact: artifact name -> CSV."""
    folder.mkdir(parents=True, exist_ok=True)
    return {
        artifact.name: client.download(job_id, artifact.name, folder).read_text()
        for artifact in client.artifacts(job_id)
        if artifact.name.startswith("outcomes-")
    }


def weights(client: AssayClient, job_id: str) -> str | None:
    """The hash of a training job's final weights (the file's header names the job, so its own differs)."""
    provenance = client.results(job_id).provenance
    assert provenance is not None
    return provenance.weights_sha256


def rows(table: str) -> list[dict[str, str]]:
    """The rows of an outcome table."""
    return list(csv.DictReader(io.StringIO(table)))
