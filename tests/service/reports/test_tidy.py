"""What a report calls a model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from assay.service.contract.results import Reference, Results
from assay.service.reports.page import provenance_lines, results_rows
from assay.service.reports.tables import pivot
from assay.service.reports.tidy import ReportedJob, tidy_rows
from tests.support.result_rows import row

METRIC = {
    "value": 0.5,
    "n": 9,
    "ci_low": 0.4,
    "ci_high": 0.6,
    "ci_method": "wilson",
    "higher_is_better": True,
}


def job(name: str, upload: str | None, model: str = "exported", job_id: str = "j1") -> ReportedJob:
    spec: dict[str, Any] = {"model": {"name": model, "weights": None}, "seed": 0, "name": name}
    if upload is not None:
        spec["model"]["weights"] = {"checkpoint": upload}
    measured = row("pgd", {"top1": METRIC}, params={"epsilon": "8/255"})
    given = {"job": job_id, "complete": True, "evaluations": [measured], "provenance": None}
    return ReportedJob(job_id, name, spec, Results.model_validate(given))


@pytest.mark.parametrize(
    ("name", "upload", "model", "label"),
    [
        ("my_models:build", "my_models.build-0123456789ab", "exported", "my_models:build"),
        ("nightly", "resnet", "exported", "resnet"),
        ("", "net-0123456789ab", "exported", "net-0123456789ab"),
        ("tuned", "w-0123456789ab", "vit", "tuned"),
        ("tuned", None, "vit", "vit"),
    ],
)
def test_an_upload_is_called_as_its_author_named_it(
    name: str, upload: str | None, model: str, label: str
) -> None:
    found = job(name, upload, model)
    assert pivot(tidy_rows([found])).header == ["attack", label]
    assert [one.model for one in tidy_rows([found])] == [model], (
        "as the columns of a data frame always had it"
    )
    said = dict(provenance_lines(found))["model"]
    assert said == (model if label == model else f"{model} ({label})")


def test_a_report_tells_the_arithmetic_of_rows() -> None:
    found = job("a", None)
    (part,) = found.results.evaluations
    rough = found.results.model_copy(update={"evaluations": [part.model_copy(update={"arithmetic": "tf32"})]})
    assert "computed in tf32: pgd" in results_rows(replace(found, results=rough))[2]
    assert not any("computed" in line for line in results_rows(found)[2])


def test_two_programs_have_their_own_columns() -> None:
    jobs = [job(name, f"{name}-0123456789ab", job_id=name) for name in ("first", "second")]
    assert pivot(tidy_rows(jobs)).header == ["attack", "first", "second"]


def test_a_report_has_no_row_of_dashes_and_no_empty_column() -> None:
    found = job("a", None)
    (part,) = found.results.evaluations
    empty = part.metrics["top1"].model_copy(update={"value": None, "ci_low": None, "ci_high": None})
    metrics = {**part.metrics, "median_l2": empty}
    results = found.results.model_copy(update={"evaluations": [part.model_copy(update={"metrics": metrics})]})
    header, rows, _ = results_rows(replace(found, results=results))
    assert [line[2] for line in rows] == ["top1"]
    assert header[-1] == "n"
    cited = Reference(metric="top1", value=0.4, source="a paper", protocol="theirs")
    results = found.results.model_copy(
        update={"evaluations": [part.model_copy(update={"reference": [cited]})]}
    )
    header, rows, _ = results_rows(replace(found, results=results))
    assert (header[-1], len(rows[0])) == ("Published", len(header))
