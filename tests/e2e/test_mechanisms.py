"""Attention mechanisms through the real service: warnings of released forms, and analyses of Skyformer."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from assay.service.client import AssayClient
from assay.service.contract.results import EvaluationResult
from tests.e2e.jobs import finished
from tests.e2e.running import RunningService

pytestmark = pytest.mark.parametrize("mode", ["embedded"], indirect=True)

SHAPE = {"image_size": 32, "patch_size": 8, "depth": 2, "width": 16, "heads": 2}
RELEASED = {"normaliser": "tensor", "scale": "released"}


def evaluated(
    client: AssayClient, attention: str, params: dict[str, Any], evaluations: list[dict[str, Any]], **top: Any
) -> tuple[str, list[EvaluationResult]]:
    """A job over an untrained transformer with that attention, and its rows."""
    job = client.submit(
        {
            "kind": "evaluate",
            "model": {"name": "vit", "params": {**SHAPE, "attention": {"name": attention, "params": params}}},
            "data": {"name": "digits"},
            "evaluations": evaluations,
            "execution": {"device": "cpu", "batch_size": 8},
            "limit": 16,
            **top,
        }
    ).id
    finished(client, job)
    return job, client.results(job).evaluations


@pytest.mark.costly
@pytest.mark.parametrize(
    ("params", "code"),
    [({}, None), (RELEASED, "batch_dependent"), ({**RELEASED, "draw": "released"}, "random_outputs")],
    ids=["default", "released normaliser", "released draw"],
)
def test_skyformer_is_warned_of_as_released_and_not_by_default(
    shared: RunningService, params: dict[str, Any], code: str | None
) -> None:
    _, rows = evaluated(shared.client, "skyformer", {"landmarks": 8, **params}, [{"name": "clean"}])
    found = [one for one in rows[0].warnings if one.code in ("batch_dependent", "random_outputs")]
    assert [one.code for one in found] == ([code] if code else [])
    for one in found:
        assert 1 <= one.evidence["count"] <= 16
        assert 1e-8 < one.evidence["largest_change"] < (1e-2 if code == "batch_dependent" else 10)


@pytest.mark.costly
def test_instability_and_spectral_error(shared: RunningService, tmp_path: Any) -> None:
    client, features = shared.client, [4, 8]
    analyses = [
        {"name": "instability", "params": {"steps": 2, "batch": 8}},
        {"name": "spectral_error", "params": {"features": features}},
    ]
    job, (instability, error) = evaluated(client, "softmax", {}, analyses)
    # Softmax beside itself, on the same batches and weights.
    assert instability.metrics["instability_ratio"].value == pytest.approx(1.0, rel=1e-9)
    assert instability.metrics["instability"].value > 0
    for count in features:
        for method in ("nystrom_scores", "nystromformer", "linformer", "performer", "skyformer"):
            metric = error.metrics[f"{method}_relative_error_{count}"]
            assert metric.n == 16
            assert metric.value is not None
            assert metric.ci_low <= metric.value <= metric.ci_high
    assert len(error.breakdown) == SHAPE["depth"]
    plots = [one.name for one in client.artifacts(job) if one.name.startswith("plot-0")]
    assert [name.split("-", 2)[2] for name in plots] == ["instability.svg", "spectral_error.svg"]
    for name in plots:
        ElementTree.fromstring(client.download(job, name, tmp_path).read_text())
