"""The demo's words follow from its numbers, and its specs are valid."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from assay.service.catalog.catalog import load
from assay.service.contract.results import EvaluationResult, Metric, PursuitBreakdown
from assay.service.studies import demo
from assay.service.studies.result_wire import StudyResults
from assay.service.submission.validate import validate

POWER = {
    "seeds": 3, "n": 355, "level": 0.0045, "resolves": 0.48, "with_twice": 0.2, "sd_seeds": 0.02,
    "sd_examples": 0.01, "sd_rest": 0.0, "least_error": None, "assumed": False, "text": "",
}  # fmt: skip


def results(*p_values: float, accuracy: float = 0.96) -> StudyResults:
    """A study with a cell for each adjusted p: the clean accuracy, and PGD at rising epsilons."""
    cells = [
        {
            "evaluation": "pgd" if number else "clean", "data": demo.DATA,
            "params": {"epsilon": f"{number}/255"} if number else {},
            "protocol": "pixel", "metric": "top1", "higher_is_better": True, "unit": "proportion",
            "tested": True,
            "arms": [
                {"arm": arm, "mean": mean, "sd": 0.02, "n": 355, "seeds": []}
                for arm, mean in ((demo.BASELINE, 0.97), (demo.ROBUST, accuracy))
            ],
            "comparisons": [
                {
                    "arm": demo.ROBUST, "baseline": demo.BASELINE, "compares": "methods", "difference": -0.1,
                    "ci_low": -0.15, "ci_high": -0.05, "ci_method": "hierarchical_bootstrap",
                    "seeds": [0, 1, 2], "n": 355, "power": POWER, "primary": number == 2,
                    "test": {
                        "name": "two_way_t", "p_value": p / 2, "adjusted_p_value": p, "statistic": 3.0,
                        "seeds": 3,
                    },
                }
            ],
        }
        for number, p in enumerate(p_values)
    ]  # fmt: skip
    return StudyResults.model_validate({
        "study": "x", "complete": True, "arms": [demo.BASELINE, demo.ROBUST], "seeds": [0, 1, 2],
        "baseline": demo.BASELINE, "adjust": "holm", "tests": len(cells), "cells": cells, "missing": [],
        "notes": [], "warnings": [],
        "primary": {
            "evaluation": "pgd", "params": {"epsilon": "2/255"}, "metric": "top1", "arm": demo.ROBUST,
            "baseline": demo.BASELINE, "claim": "difference", "margin": None, "level": 0.05,
            "p_value": p_values[2] / 2, "holds": p_values[2] < 0.1, "fixed_at": None, "text": "",
        },
    })  # fmt: skip


@pytest.mark.parametrize(("p", "said"), [(0.04, "No, it is less robust"), (0.2, "Not told apart")])
def test_the_answer_is_one_test_of_the_question_that_was_fixed(p: float, said: str) -> None:
    found = results(0.3, 0.0001, p)
    first, second = demo.answer(found).splitlines()
    assert first == "Fixed before the run: is RPC-SymViT more robust than SymViT under pgd 2/255?"
    assert second.startswith(f"{said}: -10.0 [-15.0, -5.0] points, p = {p / 2:.2g}, one test.")
    assert re.search(
        r" 3 seeds find a difference of [\d.]+ points with 80 % power, 6 seeds [\d.]+ points\.$", second
    )
    assert ("more seeds" in demo.advice(found)) == (p / 2 >= demo.LEVEL)


def test_an_answer_without_a_test_says_so() -> None:
    found = results(0.3, 0.2, 0.2)
    assert found.primary is not None
    found.primary.p_value = found.primary.holds = None
    assert demo.answer(found).endswith("No answer: the runs gave no test.")


def test_without_a_small_adjusted_p_no_other_difference_is_shown() -> None:
    text = demo.verdict(results(0.3, 0.06, 0.0001))
    assert text.startswith(
        "shown beside it: no difference. The smallest adjusted p of 2 others is 0.06 (pgd 1/255)"
    )


def test_what_else_is_shown_is_listed_with_its_interval_and_the_rest_is_not() -> None:
    text = demo.verdict(results(0.3, 0.049, 0.9, 0.0001))
    assert text.startswith("shown beside it: 2 of 3 other differences")
    assert re.findall(r"pgd (\d)/255 (\S+ \[[^]]*\])", text) == [
        ("1", "-10.0 [-15.0, -5.0]"),
        ("3", "-10.0 [-15.0, -5.0]"),
    ]


def looked(*shares: tuple[int, int, float], without: float = 0.9) -> EvaluationResult:
    """A `pursuit_check` with (layer, iteration, share of S)."""

    def metric(value: float) -> Metric:
        return Metric(
            value=value, n=9, ci_low=value, ci_high=value, ci_method="bootstrap", higher_is_better=True
        )

    known = dict.fromkeys(("auroc_noise", "auroc_occlusion", "keys_auroc_noise", "keys_auroc_occlusion"), 0.5)
    values: dict[str, float] = {"residual": 1.1, "top1": 0.98, "top1_no_sparse": without, **known}
    parts = [
        PursuitBreakdown(
            layer=layer, iteration=iteration, arm=None, planted=None, metrics={"nonzero_share": metric(share)}
        )
        for layer, iteration, share in shares
    ]
    return EvaluationResult(
        name="pursuit_check", params={}, data=demo.DATA, protocol="pixel", backend="native",
        metrics={name: metric(value) for name, value in values.items()},
        breakdown=parts, seconds=1, forward_passes=1, backward_passes=0,
    )  # fmt: skip


def test_shares_of_s_are_of_the_layer_with_most_and_means_over_seeds() -> None:
    text = demo.pursuit_text(
        [
            looked((0, 1, 0.001), (0, 2, 0.02), (1, 1, 0.0), (1, 2, 0.06)),
            looked((0, 1, 0.003), (0, 2, 0.04), (1, 1, 0.0), (1, 2, 0.02), without=0.8),
        ]
    )
    assert "S is 0.2, 5 % non-zero in iterations 1 to 2" in text
    assert "without S have 85.0 % clean accuracy in place of 98.0 %" in text
    assert "hardly acts" not in text


def test_a_pursuit_that_does_nothing_is_told() -> None:
    assert demo.pursuit_text([looked((0, 1, 0.0), (0, 2, 0.009))]).endswith("does not come from it")


def test_the_look_into_the_pursuit_waits_for_each_seed_s_training() -> None:
    class Run:
        def __init__(self, seed: int) -> None:
            self.seed, self.train = seed, f"{seed:026d}"

    class Arm:
        def __init__(self, name: str) -> None:
            self.name, self.runs = name, [Run(0), Run(5)]

    class Study:
        runs = [Arm(name) for name in demo.ARMS]  # noqa: RUF012

    specs: list[dict[str, Any]] = list(demo.check_specs(Study()))  # type: ignore[arg-type]
    assert [spec["seed"] for spec in specs] == [0, 5]
    assert [spec["model"]["weights"]["job"][-1] for spec in specs] == ["0", "5"]
    own = {**specs[0], "model": demo.ARMS[demo.ROBUST]}
    assert validate(load(), own).spec["evaluations"][0]["params"]["planted"] == ["noise", "occlusion"]


@pytest.mark.costly
@pytest.mark.parametrize(("accuracy", "code"), [(0.91, 0), (0.89, 1)])
def test_the_files_are_written_and_a_low_accuracy_fails_the_demo(
    accuracy: float, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = results(0.3, 0.2, 0.2, accuracy=accuracy)
    assert demo.finish(tmp_path, found, [looked((0, 1, 0.0), (0, 2, 0.05))]) == code
    written = json.loads((tmp_path / "results.json").read_text())
    assert StudyResults.model_validate(written["study"]) == found
    assert written["pursuit"][0]["name"] == "pursuit_check"
    assert (tmp_path / "study.csv").read_text().count("\n") == 1 + 6
    assert (tmp_path / "accuracy-against-epsilon.png").read_bytes().startswith(b"\x89PNG")
    said = capsys.readouterr().out
    assert "pgd 1/255" in said
    assert "Not told apart" in said.splitlines()[2]
    assert "shown beside it: no difference" in said
    assert "http://127.0.0.1:8000/studies/x\n" in said
    assert ("mean clean accuracy is below 90%" in said) == bool(code)
