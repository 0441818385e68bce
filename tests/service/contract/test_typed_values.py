"""Values of JSON against the types of the contract."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

import pytest

from assay.service.contract.typed_values import faults, keys_of


class Part(TypedDict):
    name: str
    size: NotRequired[int]


class Whole(TypedDict):
    kind: Literal["a", "b"]
    share: float | None
    parts: list[Part]
    by_name: dict[str, int]
    free: Any


VALID: dict[str, Any] = {
    "kind": "a",
    "share": 1,
    "parts": [{"name": "x"}, {"name": "y", "size": 2}],
    "by_name": {"z": 3},
    "free": [{"a": None}],
}


def test_what_is_of_its_type_has_no_faults() -> None:
    assert [*faults(VALID, Whole)] == []
    assert keys_of(Part) == ({"name"}, {"size"})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"kind": "c"}, ".kind: 'c' is not of"),
        ({"share": "1"}, ".share: '1' is not of"),
        ({"share": True}, ".share: True is not of"),
        ({"parts": [{"name": 1}]}, ".parts[0].name: 1 is not of str"),
        ({"parts": [{"size": 1, "name": "a", "other": 1}]}, ".parts[0]: 'other' is unknown to Part"),
        ({"parts": [{}]}, ".parts[0]: lacks name"),
        ({"parts": {}}, ".parts: an object is not of"),
        ({"by_name": {"z": 2**70}}, ".by_name.z: an integer of more than 64 bits"),
        ({"by_name": {"z": True}}, ".by_name.z: True is not of int"),
        ({"by_name": {"\0": 1}}, ".by_name: a key: a text with NUL or half of a character"),
        ({"free": ["\ud800"]}, ".free: a text with NUL or half of a character"),
        ({"free": {"a": [10**400]}}, ".free: an integer of more than 64 bits"),
        ({"x" * 500: 1}, f": {'x' * 60!r} is unknown to Whole"),
    ],
)
def test_faults_name_their_place(changes: dict[str, Any], said: str) -> None:
    (fault,) = faults(VALID | changes, Whole)
    assert fault.startswith(said)
    assert len(fault) < 200


def test_open_types_have_further_keys_of_any_value() -> None:
    assert [*faults({"name": "x", "more": [1]}, Part, open_types=(Part,))] == []
    assert [*faults({"name": "x", "more": ["\0"]}, Part, open_types=(Part,))]
