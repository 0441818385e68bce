"""Fields of a JSON Schema, and of the components in it."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.catalog.catalog import Catalog, load
from assay.service.contract.errors import ErrorDetail
from assay.service.dashboard.form_fields import (
    changed_components,
    errors_by_field,
    fields_of,
    parted,
    place_of,
    read_fields,
    without_defaults,
)


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load()


def model_schema(catalog: Catalog) -> dict[str, Any]:
    return catalog.find("model", "vit").parameters


def test_nested_components_are_drawn_and_read(catalog: Catalog) -> None:
    schema = model_schema(catalog)
    texts = {
        "p.depth": "2",
        "p.width": "192",  # the default
        "p.attention": "rpc",
        "p.attention.shown": "rpc",
        "p.attention.params.iterations": "2",
        "p.attention.params.regularization": "4",
    }
    values = read_fields(catalog, schema, texts, "p.")
    assert values == {"depth": 2, "attention": {"name": "rpc", "params": {"iterations": 2}}}
    drawn = {field.name: field for field in fields_of(catalog, schema, values, "p.")}
    attention = drawn["p.attention"]
    assert (attention.control, attention.chosen, attention.value) == ("reference", "rpc", "rpc")
    nested = {field.name: field.value for field in attention.nested}
    assert nested["p.attention.params.iterations"] == "2"
    assert nested["p.attention.params.regularization"] == ""
    assert drawn["p.image_size"].control == "number"
    assert dict(drawn["p.image_size"].bounds) == {"step": "1", "min": "1", "max": "4096"}
    shown, others = parted(list(drawn.values()), {"p.heads"})
    assert [field.label for field in shown] == ["depth", "heads", "attention"]
    assert {field.name for field in (*shown, *others)} == drawn.keys()


def test_defaults_of_nested_components_are_left_out(catalog: Catalog) -> None:
    rpc = catalog.find("attention", "rpc").parameters["properties"]
    full = {name: part["default"] for name, part in rpc.items()}
    values = {"depth": 12, "mlp_ratio": 4, "attention": {"name": "rpc", "params": full | {"iterations": 2}}}
    assert without_defaults(catalog, model_schema(catalog), values) == {
        "attention": {"name": "rpc", "params": {"iterations": 2}}
    }
    assert without_defaults(catalog, model_schema(catalog), {"attention": "softmax"}) == {}


def test_references_inside_references_end_somewhere(catalog: Catalog) -> None:
    """Data may take its vocabulary from data, which may take it from data."""
    value: dict[str, Any] = {"name": "imdb"}
    for _ in range(20):
        value = {"name": "imdb", "params": {"vocabulary": value}}
    schema = {"properties": {"data": {"component": "data", "type": ["object", "string"]}}}
    texts = {field.name for field in fields_of(catalog, schema, {"data": value}, "")}
    assert texts == {"data"}


def test_a_component_other_than_the_drawn_one_is_noticed() -> None:
    texts = {"model": "vit", "model.shown": "symvit", "data": "", "data.shown": "digits", "x": "y"}
    assert changed_components(texts) == ["model"]


def test_an_error_is_shown_at_its_field_or_above_it() -> None:
    names = ["model", "model.params.depth", "evaluations.0.suite", "evaluations.1.name"]
    assert place_of(["model", "params", "depth"], names) == "model.params.depth"
    assert place_of(["model", "params"], names) == "model"
    assert place_of(["model", "name"], names) == "model"
    assert place_of(["evaluations", 0, "suite"], names) == "evaluations.0.suite"
    assert place_of(["evaluations", 1, "params", "epsilon"], names) == "evaluations.1.name"
    assert place_of(["nothing"], names) is None
    found = errors_by_field(
        [ErrorDetail(loc=["model", "name"], message="a"), ErrorDetail(loc=[], message="b")], names
    )
    assert {name: [one.message for one in listed] for name, listed in found.items()} == {
        "model": ["a"],
        "": ["b"],
    }
