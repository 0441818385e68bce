"""Descriptions of parameters: from a component's docstring, else from types that components share."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge, doc

from assay.workers.discovery.signatures import schema_of_parameters

Width = Annotated[int, Ge(1), doc("width of the tokens.")]
HeadWidth = Annotated[Width, doc("width of a head.")]
Limit = Annotated[Annotated[int, Ge(0)] | None, doc("the most.")]


def shared(
    *, width: Width = 8, own: Width = 4, head: HeadWidth = 2, limit: Limit = None, plain: int = 1
) -> None:
    """A component.

    Args:
        own: what the component says.
    """


def test_a_shared_type_describes_the_parameter_unless_the_component_does() -> None:
    properties = schema_of_parameters(shared, {})["properties"]
    assert {name: schema.get("description") for name, schema in properties.items()} == {
        "width": "width of the tokens.",
        "own": "what the component says.",
        "head": "width of a head.",
        "limit": "the most.",
        "plain": None,
    }


def test_a_description_leaves_the_bounds_alone() -> None:
    properties = schema_of_parameters(shared, {})["properties"]
    assert properties["head"] == {
        "type": "integer",
        "minimum": 1,
        "default": 2,
        "description": "width of a head.",
    }
    assert properties["limit"]["anyOf"] == [{"type": "integer", "minimum": 0}, {"type": "null"}]
