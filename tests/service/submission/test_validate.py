"""Settings that would change nothing, and those that no data can have, are refused before the plan."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.catalog.catalog import load
from assay.service.contract.errors import ErrorDetail, InvalidSpec
from assay.service.submission.validate import validate

LANGUAGE: dict[str, Any] = {"kind": "evaluate", "model": {"name": "lm"}, "data": {"name": "pydoc"}}
CONTROL: dict[str, Any] = {
    "kind": "evaluate",
    "model": {"name": "decision_transformer"},
    "data": {"name": "classic_control"},
}


def refused(body: dict[str, Any]) -> ErrorDetail:
    with pytest.raises(InvalidSpec) as caught:
        validate(load(), body)
    (detail,) = caught.value.details
    return detail


def evaluating(body: dict[str, Any], name: str, **params: Any) -> dict[str, Any]:
    return body | {"evaluations": [{"name": name, "params": params}]}


@pytest.mark.parametrize("name", ["perplexity", "word_swap"])
@pytest.mark.parametrize("window", ["blocks", "sliding"])
def test_only_strided_windows_have_a_stride(name: str, window: str) -> None:
    validate(load(), evaluating(LANGUAGE, name, window="strided", stride=5))
    validate(load(), evaluating(LANGUAGE, name, window=window))
    detail = refused(evaluating(LANGUAGE, name, window=window, stride=5))
    assert detail.loc == ["evaluations", 0, "params"]
    assert "only strided windows have a stride" in detail.message


@pytest.mark.parametrize("own", [{"steps": 3}, {"step_size": 0.5}])
def test_only_gradients_have_steps(own: dict[str, Any]) -> None:
    validate(load(), evaluating(CONTROL, "returns", perturbation="gradient", epsilon=0.1, **own))
    validate(load(), evaluating(CONTROL, "returns", perturbation="uniform", epsilon=0.1))
    detail = refused(evaluating(CONTROL, "returns", perturbation="uniform", epsilon=0.1, **own))
    assert "only the perturbation 'gradient' has steps and a step_size" in detail.message


def test_lengths_that_no_tree_of_listops_has() -> None:
    body = {"kind": "evaluate", "model": {"name": "lra_transformer"}, "evaluations": [{"name": "clean"}]}
    lengths = {"min_length": 20, "max_length": 26}
    validate(load(), body | {"data": {"name": "listops", "params": lengths}})
    detail = refused(body | {"data": {"name": "listops", "params": lengths | {"max_length": 25}}})
    assert detail.loc == ["data", "params"]
    assert detail.message.startswith("max_length must be at least min_length + 6")
    assert detail.given == {"params.max_length": 25, "params.min_length": 20}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"kind": "train", "recipe": {"name": "small_vit"}}, "only evaluations are screened"),
        (
            {"kind": "evaluate", "evaluations": [{"name": "clean"}], "protocol": "paper"},
            "only attacks under the protocol 'pixel' are screened",
        ),
    ],
)
def test_what_cannot_be_screened_is_told_why(body: dict[str, Any], said: str) -> None:
    digits = {
        "model": {"name": "symvit", "params": {"image_size": 8, "patch_size": 2}},
        "data": {"name": "digits"},
    }
    detail = refused({**digits, **body, "execution": {"screening": "bfloat16"}})
    assert (detail.loc, detail.allowed) == (["execution", "screening"], [None])
    assert detail.message.startswith(said)


@pytest.mark.parametrize(("given", "near"), [("900/255", None), (900, None), (1.5, None), (8, "8/255")])
def test_an_epsilon_in_steps_of_pixels_is_told_with_a_fraction(given: Any, near: str | None) -> None:
    evaluations = [{"name": "pgd", "params": {"epsilon": given}}]
    found = refused(
        {
            "kind": "evaluate",
            "model": {"name": "vit", "weights": None},
            "data": {"name": "digits"},
            "evaluations": evaluations,
        }
    )
    assert (found.loc, found.given, found.nearest) == (["evaluations", 0, "params", "epsilon"], given, near)
