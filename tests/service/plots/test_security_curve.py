"""Security curves: accuracy at every radius."""

from __future__ import annotations

import pytest

from assay.service.plots.kinds import KINDS, LabelledResults
from tests.support.plot_specs import only


def test_a_security_curve_is_a_staircase_with_its_median_in_words(job: LabelledResults) -> None:
    (row,) = [one for one in job.results.evaluations if one.name == "fmn"]
    median = {"median_distance": row.metrics["top1"].model_copy(update={"value": 0.25})}
    known = row.model_copy(update={"metrics": median | row.metrics})
    spec = KINDS["security_curve"].build([only(job.results, known)])
    assert spec is not None
    assert [(point["x"], point["value"]) for point in spec["data"]["values"]] == [
        (0.0, 0.95), (0.1, pytest.approx(0.85)), (0.4, pytest.approx(0.55)), (0.8, pytest.approx(0.15))
    ]  # fmt: skip
    assert "fmn, L2: median 0.25" in spec["description"]
    marks = [layer["mark"] for layer in spec["layer"]]
    assert all(mark["interpolate"] == "step-after" for mark in marks if mark["type"] in ("line", "area"))
    endless = {"median_distance": row.metrics["top1"].model_copy(update={"value": None})}
    spec = KINDS["security_curve"].build([only(job.results, row.model_copy(update={"metrics": endless}))])
    assert spec is not None
    assert "median above all distances found" in spec["description"]
