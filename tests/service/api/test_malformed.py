"""Every posted body gets a documented answer: never a 500, always the envelope."""

from __future__ import annotations

import json
import math
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from assay.service.contract.errors import ErrorEnvelope

SPEC: dict[str, Any] = {
    "kind": "evaluate",
    "name": "x",
    "seed": 0,
    "tags": ["a"],
    "limit": 5,
    "model": {"name": "tiny_vit", "params": {"width": 16}, "weights": {"job": "0" * 26}},
    "data": {"name": "digits", "params": {}},
    "evaluations": [
        {"name": "clean"},
        {"name": "pgd", "params": {"epsilon": "2/255", "steps": 3}, "data": {"name": "digits"}},
        {"suite": "none"},
    ],
    "execution": {"device": "cpu", "batch_size": 4},
}

ODD = (
    st.none()
    | st.booleans()
    | st.sampled_from([math.nan, math.inf, -math.inf, 1e308, -0.0, 10**24, 10**30, 2**63, -1, 0, 1.5])
    | st.sampled_from(["", "8/0", "1/255", "-1/255", "NaN", "\0", "\ud800", "x" * 3000, "../..", "__proto__"])
    | st.text(max_size=5)
    | st.lists(st.integers(), max_size=3)
    | st.dictionaries(st.text(max_size=4), st.integers(), max_size=2)
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, item in inner for found in places(item, (*path, key)))]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A good spec with up to three places replaced, removed or added to; sometimes cut or nested deeply."""
    holder = [json.loads(json.dumps(SPEC))]
    for _ in range(draw(st.integers(1, 3))):
        path = (0, *draw(st.sampled_from(places(SPEC))))
        parent: Any = holder
        try:
            for key in path[:-1]:
                parent = parent[key]
            parent[path[-1]]
        except (KeyError, IndexError, TypeError):
            continue
        if isinstance(parent, str):
            continue  # an earlier change put text there
        action = draw(st.sampled_from(["replace", "remove", "add"]))
        if action == "add" and isinstance(parent[path[-1]], dict):
            parent[path[-1]][draw(st.text(max_size=6))] = draw(ODD)
        elif action == "remove" and isinstance(parent, dict):
            del parent[path[-1]]
        else:
            parent[path[-1]] = draw(ODD)
    text = json.dumps(holder[0] if holder else None).replace(
        "1e+308", draw(st.sampled_from(["1e999", "1e308"]))
    )
    raw = text.encode()
    return raw[: draw(st.integers(0, len(raw)))] if draw(st.integers(0, 9)) == 0 else raw


@pytest.mark.costly
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raw=damaged() | st.binary(max_size=40), dry_run=st.booleans())
@example(raw=b"[" * 15_000, dry_run=False)
@example(raw=b'{"a":' * 3_000, dry_run=False)
@example(raw=b"9" * 10_000, dry_run=True)
@example(raw=b'{"kind": "train", "kind": "evaluate"}', dry_run=True)
def test_only_documented_errors(api: httpx.Client, raw: bytes, dry_run: bool) -> None:
    params = {"dry_run": "true"} if dry_run else {}
    answer = api.post(
        "/api/v1/jobs", params=params, content=raw, headers={"content-type": "application/json"}
    )
    assert answer.status_code in (200, 201, 400, 422), answer.text
    if answer.status_code >= 400:
        error = ErrorEnvelope.model_validate_json(answer.content).error
        assert error.type == {400: "malformed_json", 422: "invalid_spec"}[answer.status_code]
        assert error.details or error.type == "malformed_json"
        assert len(answer.content) < 200_000


@pytest.mark.parametrize(
    "value", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 400, "1" + "0" * 24, "-1e308"]
)
def test_odd_numbers_are_never_500(api: httpx.Client, value: str) -> None:
    for template in (
        '{"seed": %s}',
        '{"kind": "train", "model": {"name": "tiny_vit", "params": {"width": %s}}}',
    ):
        raw = (template % value).encode()
        answer = api.post("/api/v1/jobs", content=raw, headers={"content-type": "application/json"})
        assert answer.status_code in (400, 422), answer.text


def test_huge_values_are_cut_in_the_answer(api: httpx.Client) -> None:
    body = {"kind": "x" * 10_000, "seed": list(range(1000))}
    answer = api.post("/api/v1/jobs", json=body)
    assert answer.status_code == 422
    assert len(answer.content) < 3000
