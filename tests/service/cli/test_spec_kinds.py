"""A spec that another command takes is refused with the name of that command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay.service.cli import commands, main
from assay.service.client import AssayClient

JOB = {"kind": "train", "name": "tiny", "model": {"name": "vit"}}
SPECS = {
    "submit": JOB,
    "run": {"defaults": {}, "jobs": [JOB]},
    "study": {"kind": "study", "arms": [{"name": "a", "model": {"name": "vit"}}], "seeds": 1},
}
WHAT = {"submit": "one job", "run": "a list of jobs", "study": "a study"}
NAMED = {"submit": "submit", "run": "submit", "study": "studies run"}
WANTED = {"submit": "one job", "run": "one job", "study": "a study"}


@pytest.mark.costly
@pytest.mark.parametrize("wanted", SPECS)
@pytest.mark.parametrize("given", SPECS)
def test_the_command_that_takes_it_is_named(
    given: str,
    wanted: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    transport: Any,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(commands, "AssayClient", lambda url: AssayClient(url, transport=transport))
    (tmp_path / "spec.json").write_text(json.dumps(SPECS[given]))
    assert main.main([wanted, "spec.json"]) == 2, "none of them is complete"
    error = capsys.readouterr().err
    if given == wanted or {given, wanted} == {"run", "submit"}:
        assert " takes it" not in error
        return
    assert error.startswith(f"error: spec.json:1: body: is {WHAT[given]}, not {WANTED[wanted]}")
    assert f"`assay {NAMED[given]} spec.json` takes it" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("spec", "command"),
    [({"model": {}}, "submit"), ({"arms": []}, "studies run"), ({"kind": "evaluate", "jobs": []}, "submit")],
)
def test_without_its_kind_a_field_tells(
    spec: Any,
    command: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    assert main.main(["run" if "arms" in spec else "study", "spec.json"]) == 2
    assert f"`assay {command} spec.json` takes it" in capsys.readouterr().err
