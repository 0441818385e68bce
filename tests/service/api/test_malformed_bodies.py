"""500 bodies that something is wrong with, against a real server: only documented errors, nothing stored.

Body n is a function of n alone. What a body has wrong with it is one of `DAMAGES`, in turns; each says
which answers it may get.
"""

from __future__ import annotations

import copy
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from assay.service.app import create_app
from assay.service.contract.errors import ErrorEnvelope
from assay.service.settings import Settings
from assay.service.store.store import Store
from tests.support.serving import LiveServer

BODIES = 500
JSON_TYPE = "application/json"
MALFORMED, INVALID, TOO_LARGE = (400, "malformed_json"), (422, "invalid_spec"), (413, "too_large")
OTHER_TYPE = (415, "unsupported_media_type")
# Body, content type, and the answers that are right; 201 where what is left may be a valid spec.
Damaged = tuple[bytes, str | None, set[tuple[int, str]]]
WRONG = [None, True, -1, 2**63, 1.5, "", "x" * 300, "\x7f", "8/0", "../../etc/passwd", [], [1], {}, {"a": 1}]
SPECS: list[dict[str, Any]] = [
    {
        "kind": "train", "name": "t", "seed": 3, "tags": ["a", "b"], "priority": 9, "timeout_seconds": 60,
        "model": {"name": "rpc_symvit", "params": {"patch_size": 8, "width": 96, "heads": 3}},
        "data": {"name": "digits", "params": {}},
        "recipe": {"name": "small_vit", "params": {"epochs": 2}},
        "execution": {"device": "auto", "dtype": "float32", "batch_size": 64},
    },
    {
        "kind": "evaluate", "name": "e", "seed": 0, "tags": ["a"], "protocol": "pixel", "limit": 100,
        "model": {"name": "symvit", "params": {"image_size": 32, "patch_size": 8, "width": 96, "heads": 3}},
        "data": {"name": "digits"},
        "evaluations": [
            {"name": "clean"},
            {"name": "pgd", "params": {"epsilon": "2/255", "steps": 20}, "data": {"name": "digits"}},
        ],
        "execution": {"batch_size": "auto"},
    },
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of everything inside a value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [
        *([path] if path else []),
        *(found for key, item in inner for found in places(item, (*path, key))),
    ]


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def spec_of(draw: random.Random) -> dict[str, Any]:
    return copy.deepcopy(draw.choice(SPECS))


def numbers(draw: random.Random, text: str) -> bytes:
    """A spec with this text instead of one of its values."""
    spec = spec_of(draw)
    path = draw.choice(places(spec))
    at(spec, path[:-1])[path[-1]] = "@@"
    return json.dumps(spec).replace('"@@"', text).encode()


def truncated(draw: random.Random) -> Damaged:
    raw = json.dumps(spec_of(draw)).encode()
    return raw[: draw.randrange(len(raw))], JSON_TYPE, {MALFORMED}


def wrong_type(draw: random.Random) -> Damaged:
    spec = spec_of(draw)
    path = draw.choice(places(spec))
    at(spec, path[:-1])[path[-1]] = draw.choice(WRONG)
    return json.dumps(spec).encode(), JSON_TYPE, {INVALID, (201, "")}


def missing(draw: random.Random) -> Damaged:
    spec = spec_of(draw)
    path = draw.choice(places(spec))
    del at(spec, path[:-1])[path[-1]]
    return json.dumps(spec).encode(), JSON_TYPE, {INVALID, (201, "")}


def unknown_field(draw: random.Random) -> Damaged:
    spec = spec_of(draw)
    objects = [(), *(path for path in places(spec) if isinstance(at(spec, path), dict))]
    name = draw.choice(["epsilonn", "stepss", "", "__proto__", "é" * 50, "\u202e", "constructor", "x" * 2000])
    at(spec, draw.choice(objects))[name] = draw.choice(WRONG)
    return json.dumps(spec).encode(), JSON_TYPE, {INVALID}


def several(draw: random.Random) -> Damaged:
    spec = spec_of(draw)
    for _ in range(draw.randint(2, 6)):
        path = draw.choice(places(spec) or [("kind",)])
        at(spec, path[:-1])[path[-1]] = draw.choice(WRONG)
    return json.dumps(spec).encode(), JSON_TYPE, {INVALID, (201, "")}


def not_finite(draw: random.Random) -> Damaged:
    text = draw.choice(["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1E+4000"])
    return numbers(draw, text), JSON_TYPE, {MALFORMED}


def huge_number(draw: random.Random) -> Damaged:
    text = draw.choice(["9" * 400, "-" + "9" * 5000, "1" + "0" * 24, "1e308", "0." + "1" * 4000, "1e-4000"])
    return numbers(draw, text), JSON_TYPE, {MALFORMED, INVALID, (201, "")}


def odd_number(draw: random.Random) -> Damaged:
    text = draw.choice(["01", "+1", ".5", "1.", "0x10", "1_000", "--1", "1e", "True", "None", "undefined"])
    return numbers(draw, text), JSON_TYPE, {MALFORMED}


def deep(draw: random.Random) -> Damaged:
    depth = draw.choice([33, 100, 1000, 9000])
    opening, closing = draw.choice([("[", "]"), ('{"a":', "}")])
    whole = draw.random() < 0.5
    inner = opening * (depth if opening == "[" else depth // 5 + 33) + "1"
    text = inner + closing * inner.count(opening) if whole else inner
    return (numbers(draw, text) if draw.random() < 0.5 else text.encode()), JSON_TYPE, {MALFORMED}


def bad_utf8(draw: random.Random) -> Damaged:
    raw = bytearray(json.dumps(spec_of(draw)).encode())
    odd = draw.choice([b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\x80", b"\xe2\x82"])
    position = draw.randrange(len(raw))
    raw[position:position] = odd
    return bytes(raw), JSON_TYPE, {MALFORMED}


def odd_character(draw: random.Random) -> Damaged:
    return (
        numbers(draw, draw.choice([r'"\u0000"', r'"\ud800"', r'"a\udfff"', r'"\x41"'])),
        JSON_TYPE,
        {MALFORMED},
    )


def other_encoding(draw: random.Random) -> Damaged:
    encoding = draw.choice(["utf-16", "utf-32", "utf-8-sig", "utf-7", "cp037"])
    body = json.dumps(spec_of(draw), ensure_ascii=False)
    raw = body.encode(encoding)
    # Text without special characters may be the same in UTF-7.
    right = {MALFORMED} if encoding != "utf-7" else {MALFORMED, (201, "")}
    return raw, JSON_TYPE, right


def repeated_key(draw: random.Random) -> Damaged:
    spec = spec_of(draw)
    objects = [(), *(path for path in places(spec) if isinstance(at(spec, path), dict) and at(spec, path))]
    target = at(spec, draw.choice(objects))
    key = draw.choice(list(target))
    target["@@"] = 0
    return json.dumps(spec).replace('"@@"', json.dumps(key)).encode(), JSON_TYPE, {MALFORMED}


def content_type(draw: random.Random) -> Damaged:
    kinds = [
        None, "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "*/*",
        "application/jsonx", "application/xml", "json", "application/json\t;", "\xff/json",
    ]  # fmt: skip
    kind = draw.choice(kinds)
    right = {(201, "")} if kind == "application/json\t;" else {OTHER_TYPE}
    return json.dumps(spec_of(draw)).encode(), kind, right


def no_object(draw: random.Random) -> Damaged:
    text = draw.choice(
        ["", " ", "null", "true", "1", '"train"', "[]", "[{}]", "{}", "{}{}", "\ufeff{}", "//", "{'kind': 1}"]
    )
    return text.encode(), JSON_TYPE, {MALFORMED, INVALID}


def noise(draw: random.Random) -> Damaged:
    return draw.randbytes(draw.randrange(200)), JSON_TYPE, {MALFORMED, INVALID}


def large(draw: random.Random) -> Damaged:
    spec = spec_of(draw)
    spec["name"] = "x" * draw.choice([20_000, 200_000])
    return json.dumps(spec).encode(), JSON_TYPE, {TOO_LARGE}


def many(draw: random.Random) -> Damaged:
    spec = spec_of(draw)
    if draw.random() < 0.5:
        spec["tags"] = [f"t{n}" for n in range(draw.choice([33, 1000]))]
    else:
        spec["model"]["params"] = {f"p{n}": n for n in range(1000)}
    return json.dumps(spec).encode(), JSON_TYPE, {INVALID}


DAMAGES: list[Callable[[random.Random], Damaged]] = [
    truncated, wrong_type, missing, unknown_field, several, not_finite, huge_number, odd_number, deep,
    bad_utf8, odd_character, other_encoding, repeated_key, content_type, no_object, noise, large, many,
]  # fmt: skip


@pytest.fixture
def client(settings: Settings, app_store: Store) -> Iterator[httpx.Client]:
    server = LiveServer(create_app(settings, store=app_store))
    with httpx.Client(base_url=server.url, timeout=30) as client:
        yield client
    server.stop()


@pytest.mark.costly
def test_only_documented_errors(client: httpx.Client, app_store: Store) -> None:
    counts: Counter[str] = Counter()
    for number in range(BODIES):
        damage = DAMAGES[number % len(DAMAGES)]
        raw, kind, right = damage(random.Random(f"malformed body {number}"))
        answer = post(client, raw, kind)
        got = (answer.status_code, error_type(answer))
        assert got in right, (number, damage.__name__, raw[:500], kind, answer.text[:1000])
        counts[str(answer.status_code)] += 1
    # Nothing of what was refused is stored, and what was damaged into another valid spec is the exception.
    assert len(app_store.jobs.page(limit=200)[0]) == counts["201"]
    assert counts["400"] > BODIES / 3
    assert counts["422"] > BODIES / 5
    assert counts["201"] < BODIES / 10


def post(client: httpx.Client, raw: bytes, kind: str | None) -> httpx.Response:
    headers = {} if kind is None else {"content-type": kind.encode("latin-1")}
    return client.post("/api/v1/jobs", content=raw, headers=headers)


def error_type(answer: httpx.Response) -> str:
    """The type of the error, once the answer is what the contract says; empty for no error."""
    if answer.status_code < 400:
        return ""
    error = ErrorEnvelope.model_validate_json(answer.content).error
    assert error.message
    assert error.details or error.type in {"malformed_json", "too_large", "unsupported_media_type"}
    assert len(answer.content) < 300_000
    return error.type
