from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.service.contract.errors import MalformedJson
from assay.service.contract.strict_json import parse_json

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**24) + 1, 10**24)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), inner, max_size=4
        )
    ),
    max_leaves=20,
)


@settings(max_examples=100, deadline=None)
@given(JSON, st.booleans())
def test_what_json_writes_is_read_back(value: Any, ascii_only: bool) -> None:
    raw = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert parse_json(raw, max_depth=200) == value


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200) | st.text('[]{}",:\\ntfu0189eE.-+', max_size=60).map(str.encode))
def test_anything_else_is_malformed_json(raw: bytes) -> None:
    try:
        value = parse_json(raw, max_depth=5)
    except MalformedJson:
        return
    json.dumps(value, allow_nan=False, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b'{"a": 1} x', "not JSON"),
        (b"\xff\xfe{}", "not UTF-8"),
        (b"\xef\xbb\xbf{}", "BOM"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": -Infinity}', "-Infinity"),
        (b'{"a": 1e999}', "too large"),
        (b'{"a": -1e999}', "too large"),
        (b"1" * 5000, "5000 characters"),
        (b'{"a": 1, "a": 2}', "given twice"),
        (b'{"a": "\\u0000"}', r"U\+0000"),
        (b'{"a": "\\ud800"}', r"U\+D800"),
        (b'{"\\udfff": 1}', r"U\+DFFF"),
        (b'["\\ud83d"]', r"U\+D83D"),
    ],
)
def test_refusals_say_why(raw: bytes, message: str) -> None:
    with pytest.raises(MalformedJson, match=message):
        parse_json(raw, max_depth=5)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (
            b'{"evaluations": [{"params": {"epsilon": NaN}}]}',
            r"evaluations\[0\]\.params\.epsilon: NaN is not",
        ),
        (b'{"limit": 1e999}', r"limit: the number 1e999 is too large"),
        (b'{"seed": 11111111111111111111111111111}', r"seed: an integer has 29 characters"),
        (b'{"tags": ["a", "b\\u0000"]}', r"tags\[1\]: a text contains U\+0000"),
        (b'{"model": {"\\u0000": 1}}', r"model: a text contains U\+0000"),
    ],
)
def test_the_field_at_fault_is_named(raw: bytes, message: str) -> None:
    with pytest.raises(MalformedJson, match=f"^{message}"):
        parse_json(raw, max_depth=5)


def test_surrogate_pairs_are_text() -> None:
    assert parse_json(b'"\\ud83d\\ude00"', max_depth=1) == "\U0001f600"


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_depth_is_counted(opening: bytes) -> None:
    closing = b"]" if opening == b"[" else b"}"
    parse_json(opening * 4 + b"1" + closing * 4, max_depth=4)
    with pytest.raises(MalformedJson, match="allowed: 4 levels"):
        parse_json(opening * 5 + b"1" + closing * 5, max_depth=4)


def test_depth_is_checked_before_the_recursive_parser() -> None:
    with pytest.raises(MalformedJson, match="nested too deeply"):
        parse_json(b"[" * 500_000, max_depth=32)


def test_brackets_in_texts_do_not_count() -> None:
    assert parse_json(json.dumps(['[[["\\[[']).encode(), max_depth=1) == ['[[["\\[[']


@pytest.mark.parametrize("raw", [b'"' + b'\\"' * 200_000, b'"' + b'\\"' * 200_000 + b"\\", b'"a' * 200_001])
def test_endless_texts_are_scanned_once(raw: bytes) -> None:
    # A scan that starts again at every quote would take hours here.
    with pytest.raises(MalformedJson):
        parse_json(raw, max_depth=4)
