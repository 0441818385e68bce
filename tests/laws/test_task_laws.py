"""What holds of every task: its facts name components that fit it, and its component returns a `Task`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from assay.service.catalog.catalog import Catalog, load
from assay.service.catalog.tasks import TaskFacts, check_facts
from assay.service.dashboard.example_specs import example_of
from assay.service.submission.validate import validate
from assay.workers import catalog
from assay.workers.jobs.final_evaluation import final_evaluation
from assay.workers.tasks.classification import Task

NAMES = load().names("task")
each_task = pytest.mark.parametrize("name", NAMES)


def tasks_of(kind: str) -> set[str]:
    return {task for entry in load().list(kind) for task in entry.tasks}


def test_the_tasks_of_the_data_and_of_the_models_are_the_tasks() -> None:
    assert tasks_of("data") == set(NAMES)
    assert {load().task(name).done_by or name for name in NAMES} == tasks_of("model")


@pytest.mark.sampled
@each_task
def test_a_component_of_a_task_serves_itself_and_returns_what_workers_do(name: str) -> None:
    assert load().find("task", name).tasks == [name]
    assert isinstance(catalog.build("task", name, {})(), Task)
    assert catalog.task(name) is catalog.task(name)


@pytest.mark.sampled
@each_task
def test_the_example_of_a_task_is_a_valid_job_on_its_data(name: str) -> None:
    spec = validate(load(), example_of(load(), load().find("task", name))).spec
    assert load().find("data", spec["data"]["name"]).tasks == [name]


@pytest.mark.sampled
@each_task
def test_a_training_ends_with_an_evaluation_of_its_task(name: str) -> None:
    facts, trained = load().task(name), {load().task(name).done_by or name}
    assert trained <= {*load().find_evaluation(facts.final.name).tasks}
    for data in load().list("data"):
        if data.tasks == [name]:
            item = final_evaluation({"data": {"name": data.name, "params": {}}})  # type: ignore[typeddict-item]
            assert item["name"] == facts.final.name
            assert facts.final.params.items() <= item["params"].items()
            assert (
                item["params"].keys() == load().find_evaluation(item["name"]).parameters["properties"].keys()
            )


@pytest.mark.sampled
@each_task
def test_the_facts_of_a_task_are_facts_that_tasks_have(name: str) -> None:
    facts: Any = load().find("task", name).facts
    check_facts(name, facts)
    assert load().task(name) == TaskFacts(**facts)
    for wrong, message in (
        ({"nuon": "boxes"}, r"x: FACTS: \['nuon'\]: a task has noun, protocols, "),
        ({"protocols": {"pixel": "boxes"}}, r"x: FACTS: protocols\.pixel: must be 'pixel', "),
        ({"example": {"model": "vit"}}, r"x: FACTS: example\.data: is missing"),
    ):
        with pytest.raises(ValueError, match=message):
            check_facts("x", {**facts, **wrong})


def test_a_task_that_the_catalog_lacks_is_served_as_image_classification() -> None:
    assert load().task("lip_reading") == Catalog([]).task("classification") == TaskFacts()
    assert type(catalog.task("lip_reading")) is Task


def test_a_training_on_a_task_that_the_catalog_lacks_is_known_by_all_of_its_data() -> None:
    """Trainings of earlier versions go on: they hashed the content. Not every task has labels."""
    data: Any = SimpleNamespace(task="lip_reading", content_sha256=lambda: "all")
    assert catalog.task(data.task).trained_truth(data) == "all"
