"""Weights of timm are fetched by a process of their own, before an evaluator without sockets needs them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from assay.workers.supervision import pretrained
from assay.workers.supervision.evaluator_process import weights_caches
from assay.workers.supervision.pretrained import fetch_pretrained
from assay.workers.weights import fetch
from tests.support.workers import settings

MODEL = {"name": "timm", "params": {"architecture": "resnet10t"}, "weights": {"timm": True}}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A file with the command lines of fetching processes, which do nothing else."""
    file = tmp_path / "calls"
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\necho "$@ ${{ASSAY_SECRET:-none}}" >> {file}\nexit ${{FETCH_EXIT:-0}}\n')
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setenv("HF_HUB_OFFLINE", "")
    monkeypatch.setenv("ASSAY_SECRET", "s3cret")
    monkeypatch.setattr(pretrained, "_fetched", set())
    monkeypatch.setattr(pretrained, "POLL_SECONDS", 0.01)
    return file


def once(spec: dict[str, Any], tmp_path: Path, **changes: Any) -> None:
    fetch_pretrained({"model": spec}, settings(tmp_path, **changes), lambda: False)  # type: ignore[typeddict-item]


def test_once_for_each_name_and_without_secrets(calls: Path, tmp_path: Path) -> None:
    once(MODEL, tmp_path)
    once(MODEL, tmp_path)
    assert calls.read_text().split("\n") == ["-P -m assay.workers.weights.fetch resnet10t  none", ""]
    once(MODEL | {"params": {"architecture": "resnet10t", "tag": "c3_in1k"}}, tmp_path)
    assert len(calls.read_text().splitlines()) == 2


def test_a_failure_is_tried_again(
    calls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("FETCH_EXIT", "1")
    once(MODEL, tmp_path)
    once(MODEL, tmp_path)
    assert len(calls.read_text().splitlines()) == 2
    assert "weights of resnet10t: not fetched, exit code 1" in caplog.text


@pytest.mark.parametrize("case", ["other weights", "off", "offline"])
def test_nothing_is_fetched_in_vain(
    calls: Path, tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if case == "offline":
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    model = MODEL | {"weights": {"job": "x"}} if case == "other weights" else MODEL
    once(model, tmp_path, sandbox="off" if case == "off" else "auto")
    assert not calls.exists()


def test_the_caches_are_those_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HUB_CACHE", "TORCH_HOME", "XDG_CACHE_HOME", "HF_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/users/a")
    assert weights_caches() == {
        "HF_HUB_CACHE": "/users/a/.cache/huggingface/hub",
        "TORCH_HOME": "/users/a/.cache/torch",
    }
    monkeypatch.setenv("HF_HOME", "/data/huggingface")
    assert weights_caches()["HF_HUB_CACHE"] == "/data/huggingface/hub"


def test_an_unknown_architecture_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert fetch.main(["resnet10x", ""]) == 1
    assert "timm has no architecture 'resnet10x'; did you mean 'resnet10t'?" in capsys.readouterr().err
