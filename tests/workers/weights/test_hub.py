"""Repositories of the hub: gated, moved, and what is never taken from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.workers.weights.hub import ALLOWED
from assay.workers.weights.pulled import find
from tests.support.hub_pulls import MODEL, run
from tests.support.hub_server import COMMIT, Hub, HubRepository


def test_a_token_opens_a_gated_repository(hub: Hub, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.repositories["org/gated"] = HubRepository(MODEL.files, gated=True)
    hub.tokens = {"Bearer hf_secret"}
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert run(root, "hf:org/gated") == 0
    assert all(
        "hf_secret" not in path.read_text(errors="ignore") for path in root.rglob("*") if path.is_file()
    )


def test_a_moved_branch_is_pulled_beside_the_old_commit(hub: Hub, root: Path) -> None:
    assert run(root, "hf:org/net") == 0
    moved = "d" * 40
    hub.repositories["org/net"] = HubRepository(MODEL.files, commit=moved)
    assert run(root, "hf:org/net") == 0
    assert find(root, "hf:org/net").revision == moved
    assert find(root, f"hf:org/net@{COMMIT}").revision == COMMIT


def test_no_code_and_no_path_is_among_the_allowed_files() -> None:
    refused = (
        "modeling.py",
        "pytorch_model.bin",
        "model.pt",
        "../config.json",
        "a/config.json",
        "model.safetensors.py",
    )
    assert not any(ALLOWED.fullmatch(name) for name in refused)
    assert ALLOWED.fullmatch("model-00001-of-00003.safetensors")
