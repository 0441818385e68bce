"""Warnings about a model as it was brought, by the plan and the first look at it."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.contract.results import Warning
from assay.workers.jobs.weights_warnings import of_weights


def of_plan(changes: Any, name: str, *evidence: Any) -> list[Warning]:
    plan: Any = {"untrained": False} | changes
    return [*of_weights(plan, evidence, name)]


def codes(plan: Any, name: str, *evidence: Any) -> list[str]:
    return [warning.code for warning in of_plan(plan, name, *evidence)]


@pytest.mark.parametrize(
    ("name", "due"),
    [("pgd", True), ("autoattack", True), ("segpgd", True), ("square", False), ("clean", False)],
)
def test_uncompared_gradients_are_told_of_attacks_that_follow_them(name: str, due: bool) -> None:
    assert codes({"gradients_not_compared": True}, name) == ["gradients_not_compared"] * due
    assert codes({"gradients_not_compared": False}, name) == []
    assert codes({}, name) == []  # plans of earlier versions do not say


def test_a_warning_of_uncompared_gradients_is_a_note_with_its_remedy() -> None:
    (warning,) = of_plan({"gradients_not_compared": True}, "pgd")
    assert warning.severity == "note"
    assert "the backward of an autograd.Function" in warning.message
    assert "export_program" in warning.message


def test_probabilities_are_a_caution_on_every_row() -> None:
    for name in ("clean", "pgd", "perplexity"):
        (warning,) = of_plan({}, name, {"probabilities": 4}, {})
        assert (warning.code, warning.severity, warning.evidence) == (
            "probabilities",
            "caution",
            {"count": 4},
        )
        assert "loss=margin" in warning.message
    assert codes({}, "pgd", {}) == []
