"""Weights of this machine, taken without a network."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from huggingface_hub import constants

from assay.workers.weights.pulled import find, listed
from tests.support.hub_pulls import MODEL, files, run
from tests.support.hub_server import COMMIT, Hub


def test_the_hubs_cache_is_used_without_a_network(
    hub: Hub, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = tmp_path / "hub-cache" / "models--org--net"
    snapshot = cache / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text(COMMIT)
    card = b"---\nlicense: mit\n---\n"
    for name, content in {**MODEL.files, "README.md": card}.items():
        if "/" not in name:
            (snapshot / name).write_bytes(content)
    assert run(root, "hf:org/net") == 0  # whose files are in the cache
    assert files(hub) == []
    shutil.rmtree(root)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert run(root, "hf:org/net") == 0
    found = find(root, "hf:org/net")
    assert (found.license, set(found.files) & {"pytorch_model.bin", "modeling_vit.py"}) == ("mit", set())
    assert "model.safetensors is on this machine: " in capsys.readouterr().err


def folder_of_a_model(folder: Path, **files: bytes) -> Path:
    folder.mkdir()
    card = b"---\nlicense: mit\n---\n"
    for name, content in {"README.md": card, **MODEL.files, **files}.items():
        if "/" not in name:
            (folder / name).write_bytes(content)
    return folder


def test_a_folder_of_this_machine_is_taken_without_a_network(
    hub: Hub, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(root, "hf:me/tiny", "--from", str(folder_of_a_model(tmp_path / "tiny"))) == 0
    assert hub.requests == []
    found = find(root, "hf:me/tiny")
    revision = f"local-{found.sha256[:40]}"
    assert (found.revision, found.license, found.repository) == (revision, "mit", None)
    assert found.config["labels"] == ["a", "c", "k"]
    assert set(found.files) == {"README.md", "config.json", "model.safetensors", "preprocessor_config.json"}
    assert run(root, "hf:me/tiny", "--from", str(tmp_path / "tiny")) == 0
    assert "already pulled: hf:me/tiny@local-" in capsys.readouterr().err
    assert run(root, "--verify", "hf:me/tiny") == 0
    assert run(root, "--list") == 0
    assert f"hf:me/tiny@{revision}  800.3 KB in 4 files" in capsys.readouterr().out
    (tmp_path / "tiny" / "config.json").write_text("{}")
    assert run(root, "hf:me/tiny", "--from", str(tmp_path / "tiny")) == 0
    assert f"hf:me/tiny was hf:me/tiny@{revision} until now, and is hf:me/tiny@" in capsys.readouterr().err
    assert find(root, "hf:me/tiny").revision != revision


def test_what_is_not_taken_from_a_folder(
    hub: Hub, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "secret.json").write_text("{}")
    linked = folder_of_a_model(tmp_path / "linked")
    (linked / "config.json").unlink()
    (linked / "config.json").symlink_to(tmp_path / "secret.json")
    pickles = folder_of_a_model(tmp_path / "pickles")
    (pickles / "model.safetensors").unlink()
    pointer = folder_of_a_model(tmp_path / "pointer", **{"model.safetensors": b"version https://git-lfs"})
    pipe = folder_of_a_model(tmp_path / "pipe")
    (pipe / "README.md").unlink()
    os.mkfifo(pipe / "README.md")
    for arguments, code, message in (
        (("hf:me/a", "--from", str(linked)), 1, "out of the folder: copy the folder with cp -rL"),
        (("hf:me/a", "--from", str(pickles)), 1, "safe_serialization=True) writes safetensors"),
        (("hf:me/a", "--from", str(pointer)), 1, "model.safetensors is no safetensors file: "),
        (("hf:me/a", "--from", str(pipe)), 1, "README.md is no regular file"),
        (("hf:me/a", "--from", str(tmp_path / "none")), 2, "is no folder"),
        (("hf:me/a@local-12", "--from", str(tmp_path / "pointer")), 1, "no safetensors file"),
        (("timm:resnet50", "--from", str(tmp_path / "secret.json")), 1, "states no hash to compare"),
        (
            ("torchvision:resnet50", "--from", str(tmp_path / "secret.json")),
            1,
            "is not the published resnet50-",
        ),
        (("hf:me/a", "hf:me/b", "--from", str(pickles)), 2, "--from goes with one reference"),
    ):
        assert run(root, *arguments) == code
        assert message in capsys.readouterr().err
    assert (listed(root), hub.requests) == ([], [])
