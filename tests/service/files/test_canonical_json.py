"""Canonical JSON by RFC 8785: the texts of numbers are those of its appendix B."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.service.files.canonical_json import canonical

# RFC 8785, appendix B: the bits of a double, and its text.
NUMBERS = {
    "0000000000000000": "0",
    "8000000000000000": "0",
    "0000000000000001": "5e-324",
    "8000000000000001": "-5e-324",
    "7fefffffffffffff": "1.7976931348623157e+308",
    "ffefffffffffffff": "-1.7976931348623157e+308",
    "4340000000000000": "9007199254740992",
    "c340000000000000": "-9007199254740992",
    "4430000000000000": "295147905179352830000",
    "44b52d02c7e14af5": "9.999999999999997e+22",
    "44b52d02c7e14af6": "1e+23",
    "44b52d02c7e14af7": "1.0000000000000001e+23",
    "444b1ae4d6e2ef4e": "999999999999999700000",
    "444b1ae4d6e2ef4f": "999999999999999900000",
    "444b1ae4d6e2ef50": "1e+21",
    "3eb0c6f7a0b5ed8c": "9.999999999999997e-7",
    "3eb0c6f7a0b5ed8d": "0.000001",
    "41b3de4355555553": "333333333.3333332",
    "41b3de4355555554": "333333333.33333325",
    "41b3de4355555555": "333333333.3333333",
    "41b3de4355555556": "333333333.3333334",
    "41b3de4355555557": "333333333.33333343",
    "becbf647612f3696": "-0.0000033333333333333333",
    "43143ff3c1cb0959": "1424953923781206.2",
}


@pytest.mark.parametrize(("bits", "text"), NUMBERS.items())
def test_numbers_are_written_as_the_standard_says(bits: str, text: str) -> None:
    (value,) = struct.unpack(">d", bytes.fromhex(bits))
    assert canonical(value).decode() == text


def test_the_example_of_the_standard() -> None:
    """RFC 8785, section 3.2.2, and the order of 3.2.3."""
    value = {
        "numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": '€$\x0f\nA\'B"\\\\"/',
        "literals": [None, True, False],
    }
    assert canonical(value).decode() == (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )
    keys = {"\u20ac": 1, "\r": 2, "\ufb33": 3, "1": 4, "\U0001f600": 5, "\x80": 6, "\xf6": 7}
    assert list(json.loads(canonical(keys)).values()) == [2, 4, 6, 7, 1, 5, 3]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_number_is_read_back(value: float) -> None:
    text = canonical(value).decode()
    assert float(text) == value
    assert canonical(json.loads(text) if "." in text or "e" in text else float(text)).decode() == text


def test_order_and_white_space_do_not_matter() -> None:
    assert canonical({"b": 1.0, "a": [1]}) == canonical({"a": [1.0], "b": 1}) == b'{"a":[1],"b":1}'


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", {1: 2}, object()])
def test_what_json_has_not_is_refused(value: Any) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (several kinds of one library)
        canonical([value])


def test_integers_that_not_every_reader_has_are_texts() -> None:
    assert (
        canonical([2**53 - 1, 2**53, -(2**53)])
        == b'[9007199254740991,"9007199254740992","-9007199254740992"]'
    )
