"""Parameters that stand for a fact of the data: filled in, and refused where they differ from it."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.catalog.catalog import load
from assay.service.contract.errors import InvalidSpec
from assay.service.submission.validate import validate

TASKS = ["listops", "text", "retrieval", "pathfinder", "image"]
DATA = {
    "listops": "listops",
    "lra_listops": "listops",
    "lra_text": "text",
    "lra_retrieval": "retrieval",
    "lra_image": "image",
    "pathfinder": "pathfinder",
}
RECIPES = ["lra_primal", "lra_skyformer"]


def job(recipe: str, data: str, **params: Any) -> dict[str, Any]:
    pairs = {"pairs": True} if data == "lra_retrieval" else {}
    return {
        "kind": "train",
        "model": {"name": "lra_transformer", "params": pairs},
        "data": {"name": data},
        "recipe": {"name": recipe, "params": params},
    }


def test_all_data_of_the_long_range_arena_state_their_task() -> None:
    stated = {one.name: (one.facts or {}).get("long_range_task") for one in load().list("data")}
    assert {name: task for name, task in stated.items() if task is not None} == DATA


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize(("data", "task"), DATA.items())
def test_the_task_is_that_of_the_data(recipe: str, data: str, task: str) -> None:
    for params in ({}, {"task": task}):
        spec = validate(load(), job(recipe, data, **params)).spec
        assert spec["kind"] == "train"
        assert spec["recipe"]["params"]["task"] == task


@pytest.mark.parametrize("recipe", RECIPES)
def test_another_task_than_that_of_the_data_is_refused(recipe: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        validate(load(), job(recipe, "lra_text", task="listops"))
    (detail,) = caught.value.details
    assert detail.loc == ["recipe", "params", "task"]
    assert detail.message == "the data 'lra_text' is for task 'text'"
    assert (detail.given, detail.allowed, detail.nearest) == ("listops", ["text"], "text")


@pytest.mark.parametrize("recipe", RECIPES)
def test_other_data_need_the_task_stated(recipe: str) -> None:
    spec = validate(load(), job(recipe, "recall", task="image")).spec
    assert spec["kind"] == "train"
    assert spec["recipe"]["params"]["task"] == "image"
    with pytest.raises(InvalidSpec) as caught:
        validate(load(), job(recipe, "recall"))
    (detail,) = caught.value.details
    assert detail.loc == ["recipe", "params", "task"]
    assert (detail.given, detail.allowed) == (None, TASKS)
