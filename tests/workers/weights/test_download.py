"""Downloads are resumed, bounded in time, and compared with their hashes."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from assay.workers.weights import download, pull
from assay.workers.weights.pulled import find, listed
from tests.support.hub_pulls import BIG, run
from tests.support.hub_server import COMMIT, Hub, HubRepository


def test_a_broken_connection_is_resumed(hub: Hub, root: Path) -> None:
    hub.repositories["org/net"] = HubRepository({"config.json": b"{}", "model.safetensors": BIG})
    hub.break_after = [2, 300_000]
    assert run(root, "hf:org/net") == 0
    assert [asked for path, asked in hub.requests if path.endswith(".safetensors")] == ["", "bytes=300000-"]
    assert (find(root, "hf:org/net").folder / "model.safetensors").read_bytes() == BIG


def test_a_later_attempt_goes_on_where_the_first_ended(
    hub: Hub, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.break_after = [9999, 300_000, 0, 0]
    assert run(root, "hf:org/net") == pull.UNREACHABLE
    said = capsys.readouterr().err
    assert "broke at byte 300,000 of model.safetensors: the same command goes on from there" in said
    assert listed(root) == []
    hub.requests.clear()
    assert run(root, "hf:org/net") == 0
    assert [asked for path, asked in hub.requests if path.endswith(".safetensors")] == ["bytes=300000-"]
    assert find(root, "hf:org/net").faults() == []


def test_a_hub_that_does_not_answer_is_named_within_seconds(
    hub: Hub, root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "READ_SECONDS", 0.2)
    hub.hang = True
    assert run(root, "hf:org/net") == pull.UNREACHABLE
    host = hub.url.removeprefix("http://")
    assert f"error: {host} cannot be reached: it does not answer" in capsys.readouterr().err
    assert len(hub.requests) == 1
    assert download.CONNECT_SECONDS <= 10


def test_a_full_disk_is_said(
    hub: Hub, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(download.shutil, "disk_usage", lambda path: SimpleNamespace(free=100_000))
    assert run(root, "hf:org/net") == pull.FAILED
    assert "has 100.0 KB left, " in capsys.readouterr().err


def test_what_is_damaged_is_seen_and_fetched_again(
    hub: Hub, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(root, "hf:org/net") == 0
    assert run(root, "--verify") == 0
    file = find(root, "hf:org/net").folder / "config.json"
    file.write_text("{}")
    capsys.readouterr()
    assert run(root, "--verify") == pull.FAILED
    assert "DAMAGED: config.json has the sha256" in capsys.readouterr().out
    assert run(root, "--verify", "hf:org/net") == pull.FAILED
    assert run(root, "hf:org/net") == 0
    assert run(root, "--verify", "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["reference"], row["faults"]) == (f"hf:org/net@{COMMIT}", [])


@pytest.mark.parametrize(
    ("size", "done", "said"),
    [
        (0, None, "0 bytes"),
        (999, None, "999 bytes"),
        (1000, None, "1.0 KB"),
        (1_460_000, None, "1.5 MB"),
        (3 * 10**15, None, "3,000.0 TB"),
        (800, 20, "20 of 800 bytes"),
        (2 * 10**9, 5 * 10**8, "0.5 of 2.0 GB"),
    ],
)
def test_bytes_are_told_in_the_largest_unit_that_they_fill(size: int, done: int | None, said: str) -> None:
    assert download.in_units(size, done) == said
