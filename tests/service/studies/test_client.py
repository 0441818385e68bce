"""Calls about studies: waiting for their end, and results as tables in notebooks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx

from assay.service.client import AsyncAssayClient
from assay.service.studies.client import StudyResultsView


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


def test_a_study_shows_means_differences_and_adjusted_p() -> None:
    html = study()._repr_html_()
    assert "pgd epsilon=8/255" in html
    assert "50.0 % ± 2.0 %" in html
    assert "+25.0 points [+20.0, +30.0 points]" in html
    assert "0.031" in html
    assert "a &lt; b" in html
    assert "<b>plain" not in html
    assert "untested_metric" not in html
    assert "Not complete" not in html


def test_missing_runs_are_told() -> None:
    missing = [{"arm": "robust", "seed": 1, "state": "running"}]
    html = study(complete=False, missing=missing, cells=[])._repr_html_()
    assert "Not complete: 1 runs are missing" in html


def test_studies_are_waited_for_together_and_without_a_thread(
    transport: httpx.BaseTransport, train_body: Callable[..., dict[str, Any]]
) -> None:
    body = train_body()
    arms = [{"name": "a", "model": body["model"]}]
    spec = {"kind": "study", "arms": arms, "seeds": 1, "evaluations": [{"name": "clean"}]}
    spec |= {"data": body["data"], "recipe": body["recipe"]}
    told = []

    async def work() -> list[str]:
        url = "http://127.0.0.1:8000"
        # A wait that held the only thread would never see the end.
        async with AsyncAssayClient(url, transport=transport, max_calls=1) as client:
            made = [await client.submit_study(spec) for _ in range(3)]
            waits = [
                client.wait_study(study_id=one.id, callback=told.append, poll_seconds=0.05) for one in made
            ]

            async def end() -> None:
                for one in made:
                    await client.cancel_study(one.id)

            ended, _ = await asyncio.gather(asyncio.gather(*waits), end())
            return [study.state.value for study in ended]

    assert asyncio.run(work()) == ["canceled"] * 3
    assert {study.state.value for study in told} >= {"canceled"}
