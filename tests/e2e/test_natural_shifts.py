"""The natural shifts through the real service, on whole trees of tiny images and a small random model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sklearn.metrics import average_precision_score

from assay.service.contract.errors import InvalidSpec
from tests.e2e.jobs import finished, outcomes, rows
from tests.e2e.running import RunningService
from tests.support.imagenet_trees import write_set

MODEL = {"image_size": 8, "patch_size": 4, "depth": 1, "width": 8, "heads": 2}
JOB: dict[str, Any] = {
    "kind": "evaluate",
    "model": {"name": "symvit", "params": MODEL},
    "data": {"name": "imagenet"},
    "evaluations": [{"suite": "natural_shifts"}],
    "execution": {"device": "cpu", "batch_size": 256},
}


# One form is enough: all have the same evaluators.
@pytest.mark.costly
@pytest.mark.parametrize("mode", ["embedded"], indirect=True)
def test_the_suite_gives_every_row_and_says_what_is_odd(shared: RunningService, tmp_path: Path) -> None:
    client, root = shared.client, shared.state.parent / "data"
    write_set(root, "imagenet", "val")
    for name in ("imagenet_a", "imagenet_r"):
        write_set(root, name)
    with pytest.raises(InvalidSpec, match="there is no folder 'imagenet-o' under the data root"):
        client.submit(JOB)
    write_set(root, "imagenet_o")
    job_id = client.submit(JOB).id
    finished(client, job_id)
    results = client.results(job_id)
    assert [row.data["name"] for row in results.evaluations] == [
        "imagenet",
        "imagenet_r",
        "imagenet_a",
        "imagenet_o",
    ]
    for row, n, published in zip(
        results.evaluations, (1001, 201, 201, 401), (50_000, 30_000, 7_500, 12_000), strict=True
    ):
        assert {metric.n for metric in row.metrics.values()} == {n}
        (odd,) = [warning for warning in row.warnings if warning.code == "incomplete_data"]
        assert odd.evidence == {"available": n, "published": published}
        assert row.data["params"]["resize"] == "bicubic"
    accuracy = {"top1", "top5", "ece", "rms_calibration_error", "aurra"}
    assert [set(row.metrics) for row in results.evaluations] == [accuracy] * 3 + [{"aupr"}]
    assert results.provenance is not None
    assert len(results.provenance.data_sha256) == 4
    tables = [rows(table) for _, table in sorted(outcomes(client, job_id, tmp_path / "tables").items())]
    assert max(int(row["prediction"]) for row in tables[1]) < 200
    confidence = [-float(row["confidence"]) for row in tables[3]]
    expected = average_precision_score([int(row["anomaly"]) for row in tables[3]], confidence)
    assert results.evaluations[3].metrics["aupr"].value == pytest.approx(expected, abs=1e-12)
