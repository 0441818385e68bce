"""Snippets that submit a spec."""

from __future__ import annotations

import ast
import json
import shlex
from typing import Any

import pytest

from assay.service.contract.specs import JOB_SPEC
from assay.service.dashboard.snippets import concise, json_body, snippets

URL = "https://assay.example"
HOSTILE = (
    'it\'s "quoted"',
    "$(touch x) `y` \\ !",
    "\u202egnihtemos",
    "\x07\x1b[31m\nEOF\n",
    "🙂\U000e0001",
    "x" * 200,
)


def spec(name: str = "") -> dict[str, Any]:
    body = {
        "kind": "evaluate",
        "name": name,
        "model": {
            "name": "rpc_symvit",
            "params": {"classes": None},
            "weights": {"job": "01jd3q0x5v8f7m2n9k4t6w1z0y"},
        },
        "data": {"name": "digits"},
        "evaluations": [{"name": "clean"}, {"name": "pgd", "params": {"epsilon": "2/255", "steps": 20}}],
    }
    return JOB_SPEC.validate_python(body).model_dump(mode="json")


@pytest.mark.parametrize("name", HOSTILE)
def test_every_snippet_holds_the_same_spec(name: str) -> None:
    whole = spec(name)
    found = dict(snippets(whole, URL))
    assert JOB_SPEC.validate_python(json.loads(found["JSON"])).model_dump(mode="json") == whole
    words = shlex.split(found["curl"])
    assert json.loads(words[words.index("-d") + 1]) == json.loads(found["JSON"])
    assert f"{URL}/api/v1/jobs" in words
    assert "\n" not in found["Command line"]
    printf, text, body, *submit = shlex.split(found["Command line"])
    assert [printf, text, *submit] == ["printf", "%s", "|", "assay", "submit", "--url", URL, "-"]
    assert json.loads(body) == json.loads(found["JSON"])
    literal = ast.parse(found["Python"]).body[1]
    assert isinstance(literal, ast.Assign)
    assert ast.literal_eval(literal.value) == json.loads(found["JSON"])
    for label, text in found.items():
        assert all(one.isprintable() or one == "\n" for one in text), label


def test_defaults_are_left_out_and_parameters_are_kept() -> None:
    short = concise(spec())
    assert list(short) == ["kind", "model", "data", "evaluations"]
    assert short["model"]["params"] == {"classes": None}
    assert short["evaluations"][0] == {"name": "clean"}


def test_an_unfinished_spec_is_shown_as_it_is() -> None:
    unfinished = {"kind": "train", "model": {"name": ""}, "nonsense": [1]}
    assert json.loads(dict(snippets(unfinished, URL))["JSON"]) == unfinished


def test_the_default_address_is_left_out_and_a_key_is_named_not_shown() -> None:
    local = dict(snippets(spec(), "http://127.0.0.1:8000/"))
    assert "--url" not in local["Command line"]
    assert "AssayClient()" in local["Python"]
    assert "ASSAY_KEY" not in local["curl"]
    assert '-H "Authorization: Bearer $ASSAY_KEY"' in dict(snippets(spec(), URL, with_key=True))["curl"]


def test_what_fits_is_on_one_line() -> None:
    assert json_body({"a": [1, 2], "b": None}) == '{"a": [1, 2], "b": null}'
    assert json_body({"a": "x" * 90}).count("\n") == 2
