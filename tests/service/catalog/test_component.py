"""An entry of the catalog: its references, its facts, its table, and what of it rules see."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from assay.service.catalog.component import Component, Package

REFERENCE = {"component": "attention", "type": ["object", "string"]}
ENTRY: dict[str, Any] = {
    "name": "vit",
    "kind": "model",
    "target": "assay.models.vit:vit",
    "summary": "s",
    "rules": [],
    "tasks": ["classification"],
    "paper": None,
    "passes": None,
    "facts": None,
}


def entry(properties: dict[str, Any] | None = None, **changes: Any) -> Component:
    schema = {"type": "object", "properties": properties or {}}
    return Component.model_validate({**ENTRY, "schema": schema, **changes})


@pytest.mark.parametrize("change", [{"speed": 1}, {"passes": {"forward": "1"}}, {"package": {"name": "x"}}])
def test_an_entry_of_another_form_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        entry(**change)


def test_a_package_is_shown_with_its_version() -> None:
    assert str(Package(name="mypkg", version="1.2")) == "mypkg 1.2"


def test_the_table_is_of_the_first_task_that_has_one() -> None:
    tables = {"classification": "attack", "segmentation": "attack_pixel"}
    of_tasks = entry(table=tables)
    assert of_tasks.table_for(["series", "segmentation", "classification"]) == "attack_pixel"
    assert of_tasks.table_for(["language"]) is None
    assert of_tasks.table_for([]) is None
    assert entry(table="clean").table_for([]) == "clean", "of every task"
    assert entry().table_for(["classification"]) is None


def test_references_are_found_in_every_branch_and_only_where_they_are_objects() -> None:
    known = entry(
        {
            "attention": REFERENCE,
            "vocabulary": {"anyOf": [{**REFERENCE, "component": "data"}, {"type": "null"}]},
            "depth": {"type": "integer"},
        }
    )
    attention, vocabulary = {"name": "rpc", "params": {}}, {"name": "pydoc"}
    params = {
        "attention": attention,
        "vocabulary": vocabulary,
        "depth": {"name": "x"},
        "other": {"name": "y"},
    }
    assert list(known.references(params)) == [
        ("attention", "attention", attention),
        ("vocabulary", "data", vocabulary),
    ]
    for given in ("rpc", None, 3, ["rpc"]):
        assert list(known.references({"attention": given, "vocabulary": None})) == []


def test_components_in_lists_are_named_one_by_one() -> None:
    items = {"type": "array", "items": {"type": "string", "component": "corruption"}}
    known = entry({"corruptions": {"anyOf": [{"enum": ["all"]}, items]}, "severities": {"type": "array"}})
    assert list(known.named({"corruptions": ["fog", "frost"], "severities": [1]})) == [
        ("corruption", "fog"),
        ("corruption", "frost"),
    ]
    assert list(known.named({"corruptions": "all"})) == []
    assert list(known.named({})) == []


def test_jobs_are_parameters_with_text() -> None:
    known = entry({"job": {"type": "string", "job": True}, "name": {"type": "string"}})
    assert list(known.jobs({"job": "01jd", "name": "01je"})) == [("job", "01jd")]
    assert list(known.jobs({"job": None})) == []


def test_facts_follow_the_parameters_and_their_defaults() -> None:
    facts = {"classes": 1000, "by_parameter": {"set": {"small": {"classes": 10}, "8": {"channels": 1}}}}
    known = entry({"set": {"type": "string", "default": "small"}}, facts=facts)
    assert known.facts_for({}) == {"classes": 10}, "of the default"
    assert known.facts_for({"set": "large"}) == {"classes": 1000}
    assert known.facts_for({"set": 8}) == {"classes": 1000, "channels": 1}, "keys of JSON are texts"
    assert known.facts == facts, "the entry itself stays"
    assert entry().facts_for({}) == {}


def test_rules_see_fractions_as_numbers_beside_tasks_and_facts() -> None:
    fraction = {"type": ["number", "string"], "fraction": True}
    known = entry({"epsilon": fraction, "steps": {"type": "integer"}}, facts={"classes": 10})
    seen = known.known({"epsilon": "8/255", "steps": 3})
    assert seen["epsilon"] == pytest.approx(8 / 255)
    assert (seen["steps"], seen["tasks"], seen["classes"]) == (3, ["classification"], 10)
