"""Warnings at submission about what is trained, and about equal evaluations."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.catalog.catalog import load
from assay.service.contract.errors import InvalidSpec
from assay.service.submission.validate import validate
from assay.service.submission.warnings import training_warnings

TRAINED = {"kind": "train", "data": {"name": "digits"}, "recipe": {"name": "small_vit"}}


def codes(model: dict[str, Any], **more: Any) -> list[str]:
    body = {**TRAINED, "model": {"params": {"image_size": 32, "patch_size": 8}} | model, **more}
    return [warning["code"] for warning in validate(load(), body).warnings]


@pytest.mark.parametrize(("attention", "warned"), [("nystrom_scores", True), ("skyformer", False)])
def test_a_training_with_a_part_for_analyses_is_warned_of(attention: str, warned: bool) -> None:
    params = {"image_size": 32, "patch_size": 8, "attention": {"name": attention}}
    assert codes({"name": "vit", "params": params}) == ["analysis_only"] * warned


def test_a_part_of_a_part_is_found_and_the_reason_told() -> None:
    attention = {"name": "nystrom_scores", "params": {}}
    backbone = {"name": "vit", "params": {"attention": attention}}
    spec = {"kind": "train", "model": {"name": "segmenter", "params": {"backbone": backbone}}}
    (warning,) = training_warnings(load(), spec)
    assert warning.evidence["component"] == "nystrom_scores"
    assert "gradients" in warning.message
    assert not list(training_warnings(load(), {**spec, "kind": "evaluate"}))


def test_parts_that_are_gone_are_passed_over() -> None:
    model = {"name": "vit", "params": {"attention": {"name": "of_another_version", "params": {}}}}
    assert not list(training_warnings(load(), {"kind": "train", "model": model}))


def test_equal_evaluations_are_warned_of_however_they_are_written() -> None:
    evaluations = [
        {"name": "pgd", "params": {"epsilon": "8/255"}},
        {"name": "clean"},
        {"name": "pgd", "params": {"epsilon": "8/255", "norm": "Linf"}},
        {"name": "pgd", "params": {"epsilon": "8/255", "norm": "L2"}},
    ]
    body = {
        "kind": "evaluate", "data": {"name": "digits"}, "evaluations": evaluations,
        "model": {"name": "vit", "params": {"image_size": 8, "patch_size": 4}},
    }  # fmt: skip
    found = [one for one in validate(load(), body).warnings if one["code"] == "repeated_evaluation"]
    assert [one["evidence"] for one in found] == [{"evaluations": [0, 2]}]
    assert found[0]["message"] == "evaluations 0 and 2 are the same: pgd is measured twice"


def test_fields_in_a_wrong_place_and_options_of_execution_are_told_where_and_which() -> None:
    body = {
        "kind": "evaluate", "data": {"name": "digits", "limit": 9}, "evaluations": [{"name": "clean"}],
        "model": {"name": "vit", "params": {"image_size": 8, "patch_size": 4}}, "dry_run": True,
        "execution": {"compile": "yes", "screening": "half", "capture": "perhaps", "dtype": "fp9"},
    }  # fmt: skip
    with pytest.raises(InvalidSpec) as caught:
        validate(load(), body)
    found = {detail.loc[-1]: detail for detail in caught.value.details}
    assert found["limit"].nearest == "limit (beside data)"
    assert found["dry_run"].nearest == "?dry_run=true"
    assert found["compile"].allowed == ["off", "auto", "on", None]
    assert found["screening"].allowed == ["bfloat16", "bfloat16_gradients", None]
    assert found["capture"].allowed == [True, False, None]
    assert found["dtype"].allowed == ["float32", "tf32", "float64", "bfloat16"]
