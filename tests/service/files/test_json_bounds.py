"""Bounds of JSON, before it is parsed."""

from __future__ import annotations

import json

import pytest

from assay.service.files.json_bounds import MAX_DEPTH, JsonBounds

BOUNDS = JsonBounds(size=1000, values=10, containers=4)


@pytest.mark.parametrize(
    "text",
    [
        b"[1,2,3,4,5,6,7,8,9]",
        b'{"a":[],"b":[[]]}',
        b'["[[[[[[{{{{,,,,,,,,"]',
        b'["\\"[[[[[[", "\\\\"]',
        b'"never ended [[[[[[[[[[,,,,,,',
        b"",
    ],
)
def test_what_is_within_the_bounds(text: bytes) -> None:
    BOUNDS.check(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"[" + b"1," * 600, "bytes or more; allowed: 1,000"),
        (b"[0,1,2,3,4,5,6,7,8,9,10]", "11 values or more; allowed: 10"),
        (b"[[],[],[],[]]", "5 objects and lists or more; allowed: 4"),
        (b'["\\\\",[],[],[],[]]', "5 objects and lists or more; allowed: 4"),
        (b"[" * 20, "5 objects and lists or more; allowed: 4"),
    ],
)
def test_what_is_over_a_bound(text: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        BOUNDS.check(text)


def test_depth_is_bounded_where_containers_are_many() -> None:
    large = JsonBounds(10**6, 10**6, 10**6)
    deep = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    large.check(deep)
    large.check(b"[" + b",".join([deep[1:-1]] * 3) + b"]")
    with pytest.raises(ValueError, match="13 levels or more; allowed: 12"):
        large.check(b"[" + deep + b"]")


def test_what_passes_is_what_json_counts() -> None:
    value = {"a": [1, {"b": "x,[{"}], "c": None}
    JsonBounds(1000, 8, 3).check(json.dumps(value).encode())
    with pytest.raises(ValueError, match="3 objects and lists"):
        JsonBounds(1000, 8, 2).check(json.dumps(value).encode())
