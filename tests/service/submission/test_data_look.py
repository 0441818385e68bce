"""A dry run that decodes: what is unreadable, ignored and empty in the data of a spec, all at once."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from PIL import Image

from assay.service.catalog.catalog import load
from assay.service.cli.output import data_lines
from assay.service.contract.extras import MissingExtra
from assay.service.submission import data_look
from assay.service.submission.data_look import look_at_data
from assay.service.submission.validate import validate


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "Übung"
    for name in ("cat", "dog"):
        (root / "pets" / name).mkdir(parents=True)
        for number in range(3):
            Image.new("RGB", (8, 8)).save(root / "pets" / name / f"{number}.png")
    (root / "pets" / "fox").mkdir()
    (root / "pets" / "__MACOSX").mkdir()
    for name in ("cat/1.png", "dog/2.png"):
        (root / "pets" / name).write_bytes(b"no image")
    return root


def spec(*more: dict[str, Any], name: str = "image_folder") -> Any:
    params = {"folder": "pets", "splits": "all"} if name == "image_folder" else {}
    body = {
        "kind": "evaluate",
        "model": {"name": "vit"},
        "data": {"name": name, "params": params},
        "evaluations": [{"name": "clean"}, *more],
    }
    return validate(load(), body).spec


@pytest.mark.costly
def test_everything_that_is_wrong_is_listed_at_once(root: Path) -> None:
    (found,) = look_at_data(load(), spec(), root)
    assert (found["looked"], found["problem"], found["split"]) == (True, None, "test")
    assert (found["examples"], found["decoded"], found["unreadable_count"]) == (6, 6, 2)
    assert [message.partition(" cannot")[0] for message in found["unreadable"]] == [
        "$ASSAY_DATA_ROOT/pets/cat/1.png",
        "$ASSAY_DATA_ROOT/pets/dog/2.png",
    ]
    assert found["ignored"] == {"count": 1, "first": ["__MACOSX/"]}
    assert found["empty_classes"] == ["fox"]
    lines = list(data_lines(found))
    assert lines[0] == "data image_folder pets, test: 6 examples, all looked at; 2 cannot be read:"
    assert lines[3:] == ["  classes without an example: fox", "  ignored beside the images (1): __MACOSX/"]


def test_each_folder_is_looked_at_once_by_a_process_without_secrets(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[list[str], dict[str, str]]] = []

    def run(command: list[str], *, env: dict[str, str], **_: Any) -> Any:
        calls.append((command, env))
        part = {"problem": "no images", "examples": None, "look": None}
        return subprocess.CompletedProcess(
            command, 0, json.dumps({"sets": [{"splits": [part]}]}).encode(), b""
        )

    monkeypatch.setenv("ASSAY_DATABASE_URL", "postgresql://secret")
    monkeypatch.setattr(data_look.subprocess, "run", run)
    own = {"name": "clean", "data": {"name": "image_folder", "params": {"folder": "pets", "splits": "auto"}}}
    found = look_at_data(load(), spec(own, own), root)
    assert [entry["problem"] for entry in found] == ["no images", "no images"]
    assert len(calls) == 2
    assert all("ASSAY_DATABASE_URL" not in env and env["ASSAY_DATA_ROOT"] == str(root) for _, env in calls)
    assert list(data_lines(found[0])) == ["data image_folder pets, test: no images"]
    assert look_at_data(load(), spec(name="digits"), root) == []


def test_why_nothing_could_be_looked_at_is_said(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: str) -> None:
        raise MissingExtra("needs the worker")

    def late(command: list[str], **_: Any) -> Any:
        raise subprocess.TimeoutExpired(command, 1)

    def broken(command: list[str], **_: Any) -> Any:
        return subprocess.CompletedProcess(command, 1, b"", b"first\nKilled\n")

    for where in (None, root / "nowhere"):
        (found,) = look_at_data(load(), spec(), where)
        assert (found["looked"], found["problem"]) == (False, "the service does not see the data root")
    line = "data image_folder pets, test: not looked at: the service does not see the data root"
    assert list(data_lines(found)) == [line]
    for run, problem in ((late, "did not end within"), (broken, "failed: Killed")):
        monkeypatch.setattr(data_look.subprocess, "run", run)
        (found,) = look_at_data(load(), spec(), root)
        assert found["looked"] is False
        assert problem in found["problem"]
    monkeypatch.setattr(data_look, "require", missing)
    assert look_at_data(load(), spec(), root)[0]["problem"] == "needs the worker"


@pytest.mark.costly
def test_a_table_that_grows_when_it_is_read_ends_the_process_and_not_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4 million equal rows of 1000 characters, run-length encoded, under a cap of a gigabyte."""
    (tmp_path / "texts").mkdir()
    rows = np.zeros(1 << 22, np.int32)
    columns = {
        name: pa.DictionaryArray.from_arrays(rows, [text])
        for name, text in (("text", "x" * 1000), ("label", "a"))
    }
    path = tmp_path / "texts" / "train.parquet"
    pyarrow.parquet.write_table(pa.table(columns), path, store_schema=False)
    assert path.stat().st_size < 1_000_000
    monkeypatch.setattr(data_look, "MEMORY", 1 << 30)
    body = spec() | {"data": {"name": "text_table", "params": {"folder": "texts"}}}
    (found,) = look_at_data(load(), body, tmp_path)
    assert "failed" in found["problem"]


@pytest.mark.costly
def test_a_dry_run_does_not_wait_for_others_without_end(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_look, "WAIT", 0.01)
    with data_look._one_at_a_time:
        (found,) = look_at_data(load(), spec(), root)
    assert "another dry run; try again" in found["problem"]
    (found,) = look_at_data(load(), spec(), root)
    assert found["looked"]


def test_long_lists_and_samples_are_said_to_be_such() -> None:
    look = {
        "data": {"name": "image_folder", "params": {"folder": "pets"}},
        "split": "test",
        "looked": True,
        "problem": None,
        "examples": 1000,
        "decoded": 200,
        "unreadable": ["a cannot be read"],
        "unreadable_count": 3,
        "empty_classes": [],
        "notes": ["x"],
        "ignored": {"count": 12, "first": ["b", "c"]},
    }
    assert list(data_lines(look)) == [
        "data image_folder pets, test: 1000 examples, 200 of 1000 looked at; 3 cannot be read:",
        "  a cannot be read",
        "  and 2 more that cannot be read",
        "  ignored beside the images (12): b, c, ...",
        "  x",
    ]
