"""Jobs and studies as tables in notebooks."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import httpx

from assay.service.cli.output import job_text
from assay.service.cli.progress_bars import line_of
from assay.service.client import AssayClient
from assay.service.client.notebook_tables import JobView, StudyResultsView
from assay.service.contract.results import Progress
from assay.service.reports.numbers import speed_text

Make = Callable[..., dict[str, Any]]


def study(**fields: Any) -> StudyResultsView:
    def cell(metric: str, *, tested: bool) -> dict[str, Any]:
        return {
            "evaluation": "pgd", "params": {"epsilon": "8/255", "steps": 20}, "data": {"name": "digits"},
            "protocol": "pixel", "metric": metric, "higher_is_better": True, "unit": "proportion",
            "tested": tested,
            "arms": [
                {"arm": arm, "mean": mean, "sd": 0.02, "n": 355, "seeds": []}
                for arm, mean in (("<b>plain", 0.5), ("robust", 0.75))
            ],
            "comparisons": [
                {
                    "arm": "robust", "baseline": "<b>plain", "compares": "methods", "difference": 0.25,
                    "ci_low": 0.2, "ci_high": 0.3, "ci_method": "hierarchical_bootstrap", "seeds": [0, 1],
                    "n": 355,
                    "test": {
                        "name": "two_way_t", "p_value": 0.01, "adjusted_p_value": 0.031, "statistic": 3.0,
                        "seeds": 2,
                    },
                }
            ],
        }  # fmt: skip

    known = {
        "study": "x", "complete": True, "arms": ["<b>plain", "robust"], "seeds": [0, 1],
        "baseline": "<b>plain", "adjust": "holm", "tests": 1, "missing": [], "notes": ["a < b"],
        "cells": [cell("top1", tested=True), cell("untested_metric", tested=False)], "warnings": [],
    }  # fmt: skip
    return StudyResultsView.model_validate(known | fields)


def test_a_job_shows_state_and_progress_and_escapes_names(
    transport: httpx.BaseTransport, train_body: Make
) -> None:
    client = AssayClient("http://127.0.0.1:8000", transport=transport)
    job = client.submit(train_body(name="<script>x</script>\u202e"))
    html = job._repr_html_()
    assert "queued" in html
    assert "tiny_vit" in html
    assert "&lt;script&gt;x" in html
    assert "<script>" not in html
    assert "\u202e" not in html
    assert "error" not in html
    canceled = client.cancel(job.id)
    assert "canceled" in canceled._repr_html_()
    assert all(isinstance(found, JobView) for found in (canceled, client.job(job.id), *client.jobs()))


def test_the_time_left_is_shown_while_a_job_runs(transport: httpx.BaseTransport, train_body: Make) -> None:
    job = AssayClient("http://127.0.0.1:8000", transport=transport).submit(train_body())
    progress = Progress(done=3, total=10, unit="steps", eta_seconds=41.7)
    assert "3 of 10 steps, about 42 s left" in job.model_copy(update={"progress": progress})._repr_html_()


def test_the_speed_of_a_training_is_shown_while_it_runs(
    transport: httpx.BaseTransport, train_body: Make
) -> None:
    job = AssayClient("http://127.0.0.1:8000", transport=transport).submit(train_body())
    progress = Progress(
        done=3,
        total=10,
        unit="steps",
        eta_seconds=None,
        examples_per_second=1234.4,
        gpu_busy=0.61,
        gpu_memory=0.25,
    )
    said = "1,234 examples/s, GPU 61% busy, GPU memory 25% in use"
    assert speed_text(progress) == said
    shown = job.model_copy(update={"progress": progress, "message": "epoch 1/2"})
    assert f"3 of 10 steps; {said}" in shown._repr_html_()
    assert line_of(shown).message == f"epoch 1/2; {said}"
    assert re.search(f"speed +{said}", job_text(shown))
    slow = progress.model_copy(update={"examples_per_second": 7.25, "gpu_busy": None})
    assert speed_text(slow) == "7.2 examples/s, GPU memory 25% in use"


def test_a_study_shows_means_differences_and_adjusted_p() -> None:
    html = study()._repr_html_()
    assert "pgd epsilon=8/255" in html
    assert "50.0 % ± 2.0 %" in html
    assert "+25.0 % [+20.0 %, +30.0 %]" in html
    assert "0.031" in html
    assert "a &lt; b" in html
    assert "<b>plain" not in html
    assert "untested_metric" not in html
    assert "Not complete" not in html


def test_missing_runs_are_told() -> None:
    missing = [{"arm": "robust", "seed": 1, "state": "running"}]
    html = study(complete=False, missing=missing, cells=[])._repr_html_()
    assert "Not complete: 1 runs are missing" in html
