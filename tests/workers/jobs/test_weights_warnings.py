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
    [
        ("pgd", True),
        ("autoattack", True),
        ("segpgd", True),
        ("square", False),
        ("uniform_noise", False),
        ("clean", False),
    ],
)
def test_uncompared_gradients_are_told_of_attacks_that_follow_them(name: str, due: bool) -> None:
    assert codes({"gradients_not_compared": True}, name) == ["gradients_not_compared"] * due
    assert codes({"gradients_not_compared": False}, name) == []
    assert codes({}, name) == []  # plans of earlier versions do not say


@pytest.mark.parametrize("name", ["bpda", "transfer"])
def test_uncompared_gradients_of_the_other_program_are_told_of_attacks_that_follow_them(name: str) -> None:
    other = f"checkpoint:soft@{'a' * 64}"
    plan: Any = {"untrained": False, "gradients_not_compared": False, "sources_not_compared": [other]}
    (warning,) = of_weights(plan, [], name, {"job": other})
    assert (warning.code, warning.evidence) == ("gradients_not_compared", {"sources": [other]})
    assert f"the gradients of the program of {other} are its module's" in warning.message
    assert [*of_weights(plan, [], "pgd", {})] == []
    assert [*of_weights(plan, [], name, {"job": "checkpoint:compared"})] == []
    own: Any = {"untrained": False, "gradients_not_compared": True, "sources_not_compared": []}
    assert [*of_weights(own, [], name, {"job": other})] == []  # its own gradients are not followed


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
