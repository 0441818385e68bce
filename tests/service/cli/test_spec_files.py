"""Specs in YAML and JSON, and the lines that errors name."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.service.cli import commands, main
from assay.service.cli.profiles import UsageError
from assay.service.cli.spec_files import MAX_BYTES, read_spec
from assay.service.client import AssayClient

Write = Callable[..., str]
SPEC = """\
# An attack on random weights.
kind: evaluate
model: {name: tiny_vit}
data:
  name: digits
seed: -1
evaluations:
- name: pgd
  params:
    epsilonn: 1e-3
    steps: 3
- name: clean
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    monkeypatch.chdir(tmp_path)

    def write(text: str | bytes, name: str = "train.yaml") -> str:
        (tmp_path / name).write_bytes(text.encode() if isinstance(text, str) else text)
        return name

    return write


@pytest.fixture
def assay(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, transport: Any
) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.setattr(commands, "AssayClient", lambda url: AssayClient(url, transport=transport))

    def assay(*arguments: str) -> tuple[int, str, str]:
        code = main.main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return assay


def value(write: Write, text: str) -> Any:
    return read_spec(write(text)).value


def test_yaml_is_read_as_json_would_be(write: Write) -> None:
    text = "a: [1, -2, 1e-3, 1.5, .5, true, False, null, ~]\nb: {c: 8/255, d: 'x', e: \"1\"}\nf:\n"
    assert value(write, text) == {
        "a": [1, -2, 0.001, 1.5, 0.5, True, False, None, None],
        "b": {"c": "8/255", "d": "x", "e": "1"},
        "f": None,
    }


@pytest.mark.parametrize(
    "text", ["no", "on", "yes", "off", "8/255", "2026-01-01", "12:30", "1_000", "0x10", ".inf", "1e", "nan"]
)
def test_what_earlier_versions_of_yaml_turn_into_something_else_is_text(write: Write, text: str) -> None:
    assert value(write, f"a: {text}") == {"a": text}
    assert value(write, f"{text}: 1") == {text: 1}


def test_aliases_are_values(write: Write) -> None:
    assert value(write, "a: &x {b: [1]}\nc: *x\n") == {"a": {"b": [1]}, "c": {"b": [1]}}


LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: [1, 2\nc: 3\n", "train.yaml:3:"),
        ("a: 1\n  b: 2\n", "train.yaml:2:4: not YAML: mapping values are not allowed here"),
        ("a: 1\nb: 2\na: 3\n", "train.yaml:3:1: the key 'a' is given twice"),
        (
            "a: !!python/object/apply:os.system [ls]\n",
            "train.yaml:1:4: the tag tag:yaml.org,2002:python/object",
        ),
        ("a: &x {b: 1}\nc: {<<: *x}\n", "train.yaml:2:5: merge keys (<<) are not read"),
        ("a: *x\n", "train.yaml:1:4: *x has no anchor before it"),
        ("a: &x [*x]\n", "train.yaml:1:8: *x has no anchor before it"),
        ("a: 1\n---\nb: 2\n", "train.yaml:2:1: another document begins"),
        ("[1]: 2\n", "train.yaml:1:1: a key must be text"),
        ("\tb: 1\n", "train.yaml:1:1: not YAML: found character"),
        (LAUGHS, "the spec has too many values; allowed: 20000, aliases included"),
        ("[" * 50 + "]" * 50, "is nested too deeply; allowed: 40 levels"),
        ("a: 1e999\n", "Infinity is not JSON"),
        ("a: " + "9" * 30, "an integer has 30 characters"),
        (b"a: \xff", "train.yaml: is not UTF-8"),
        (" \n", "train.yaml: the file is empty; allowed: a spec as JSON or YAML"),
        ("a: \x01", "train.yaml: not YAML: unacceptable character"),
        ("#" * (MAX_BYTES + 1), "train.yaml: has 1048577 bytes; allowed: 1048576"),
    ],
)
def test_what_is_refused_names_its_place(write: Write, text: str | bytes, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_spec(write(text))
    assert message in str(caught.value)


def test_json_is_sent_as_it_is_and_its_errors_name_line_and_column(write: Write) -> None:
    raw = b'{"a":  [1,\t2]}'
    assert read_spec(write(raw, "a.json")).body == raw
    for text, message in (
        ('{"a": 1,\n  b: 2}', "a.json:2:3: not JSON: Expecting property name enclosed in double quotes"),
        ('{"a": NaN}', "a.json: a: NaN is not JSON"),
        ('{"a": 1, "a": 2}', "a.json: the key 'a' is given twice in one object"),
    ):
        with pytest.raises(UsageError) as caught:
            read_spec(write(text, "a.json"))
        assert str(caught.value) == message or str(caught.value).startswith(f"{message};")


def test_the_service_s_errors_name_the_lines_of_a_yaml_file(write: Write, assay: Any) -> None:
    code, out, err = assay("submit", write(SPEC))
    assert (code, out) == (2, "")
    lines = err.splitlines()
    assert lines[0].startswith("error: train.yaml:6: seed: must be an integer")
    assert any(
        line.startswith(
            "  train.yaml:10: evaluations[0].params.epsilonn: unknown parameter; did you mean 'epsilon'?"
        )
        for line in lines
    )


def test_they_name_those_of_a_json_file_indented_by_tabulators(write: Write, assay: Any) -> None:
    spec = read_spec(write(SPEC)).value
    code, _, err = assay("submit", write(json.dumps(spec, indent="\t"), "train.json"))
    assert code == 2
    assert "train.json:9: seed: " in err
    assert "train.json:14: evaluations[0].params.epsilonn: " in err


def test_without_pyyaml_json_errors_name_the_file(
    write: Write, assay: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = json.dumps(read_spec(write(SPEC)).value)
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert "train.json: evaluations[0].params.epsilonn: " in assay("submit", write(body, "train.json"))[2]
    code, _, err = assay("submit", write(SPEC))
    assert code == 2
    assert err.startswith("error: `assay submit` needs the package yaml: pip install 'assay-robustness[cli]'")


def test_standard_input_may_be_yaml(write: Write, assay: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Input:
        buffer = io.BytesIO(SPEC.encode())

    monkeypatch.setattr(sys, "stdin", Input)
    assert "<stdin>:6: seed: " in assay("submit", "-")[2]


def test_a_list_points_into_its_jobs_and_its_defaults(write: Write, assay: Any) -> None:
    text = """\
defaults:
  evaluate:
    data: {name: digits}
    evaluations:
    - {name: cleann}
jobs:
- kind: evaluate
  name: a
  model: {name: tiny_vitt}
"""
    code, _, err = assay("run", write(text, "list.yaml"))
    assert code == 2
    assert "list.yaml:9: jobs[0].model.name: " in err
    assert "list.yaml:5: jobs[0].evaluations[0].name: " in err


def test_they_are_in_the_order_of_the_lines(write: Write, assay: Any) -> None:
    text = """\
evaluations:
- {name: cleann}
kind: evaluate
data: {name: digitss}
seed: one
model: {name: tiny_vitt}
"""
    code, out, err = assay("submit", write(text))
    assert (code, out) == (2, "")
    places = re.findall(r"train\.yaml:(\d+): ([a-z]+)", err)
    assert places == sorted(places, key=lambda place: int(place[0]))
    assert [field for _, field in places] == ["evaluations", "data", "seed", "model"]


def test_they_are_in_the_order_of_the_columns_of_a_line(write: Write) -> None:
    spec = read_spec(write("model: {name: vit, weights: {job: a}}\ndata: {}\n"))
    places = [("data",), ("model", "weights", "job"), ("model", "name"), ("model",)]
    assert sorted(places, key=spec.rank) == places[::-1]


def test_a_study_points_into_its_arms(write: Write, assay: Any) -> None:
    code, _, err = assay("study", write("kind: study\nseeds: 1\narms:\n- name: a\n- name: b\n", "s.yml"))
    assert code == 2
    assert "s.yml:4: arms[0].model: is required" in err
