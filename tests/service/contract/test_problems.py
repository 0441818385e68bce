"""Errors of pydantic in the words of every other refusal."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import pytest
from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
from pydantic import AllowInfNan, BaseModel, ConfigDict, StringConstraints, TypeAdapter, ValidationError

from assay.service.contract.problems import message_of


class Body(BaseModel):
    """A field that must be there, and no other."""

    model_config = ConfigDict(extra="forbid")
    name: str


@pytest.mark.parametrize(
    ("annotation", "given", "said"),
    [
        (Annotated[int, Ge(1)], 0, "must be at least 1"),
        (Annotated[float, Gt(0)], 0.0, "must be more than 0"),
        (Annotated[int, Le(200)], 201, "must be at most 200"),
        (Annotated[float, Le(1_234_567.0)], 2e6, "must be at most 1234567"),
        (Annotated[float, Ge(0.1234567)], 0.0, "must be at least 0.1234567"),
        (Annotated[float, Lt(1)], 1.0, "must be less than 1"),
        (Annotated[float, AllowInfNan(False)], float("inf"), "must be a finite number"),
        (int, "1.5", "must be an integer"),
        (int, 1.5, "must be an integer"),
        (float, "a", "must be a number"),
        (bool, "maybe", "must be true or false"),
        (str, 1, "must be a text"),
        (list[int], 1, "must be a list"),
        (dict[str, int], 1, "must be an object"),
        (Body, 1, "must be an object"),
        (Body, {}, "is missing"),
        (Body, {"name": "a", "nmae": "b"}, "is not a field"),
        (Annotated[str, MinLen(1)], "", "must not be empty"),
        (Annotated[str, MinLen(3)], "ab", "must have 3 characters or more"),
        (Annotated[str, MaxLen(2)], "abc", "must have 2 characters at most"),
        (Annotated[list[int], MaxLen(1)], [1, 2], "must have 1 items at most"),
        (Literal["on", "off"], "no", "must be 'on' or 'off'"),
        (datetime, "yesterday", "must be a time such as 2026-01-31T12:00:00Z"),
        (
            Annotated[str, StringConstraints(pattern="^[0-9a-f]{16}$")],
            "x",
            "must have 16 characters of 0-9a-f",
        ),
        (Annotated[str, StringConstraints(pattern="^[a-z]+$")], "A", "must have the form ^[a-z]+$"),
    ],
)
def test_a_refusal_says_what_must_be(annotation: Any, given: object, said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(annotation).validate_python(given)
    assert message_of(caught.value.errors()[0]) == said  # type: ignore[arg-type]


def test_a_rule_of_a_settings_class_keeps_its_own_words() -> None:
    assert message_of({"type": "value_error", "msg": "Value error, a and b exclude each other"}) == (
        "a and b exclude each other"
    )
