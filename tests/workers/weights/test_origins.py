"""Weights by their source: timm, torchvision, pickles."""

from __future__ import annotations

import hashlib
import shutil
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import safetensors.torch
import timm as library
import torch

from assay.models import from_torchvision
from assay.models.from_torchvision import torchvision
from assay.workers.weights import origins, pull
from assay.workers.weights.pulled import find, listed
from tests.support.hub_pulls import run
from tests.support.hub_server import Hub, HubRepository


def test_timm_by_its_repository(hub: Hub, root: Path) -> None:
    """The file of the hub, under the whole name, with timm's own facts of it."""
    torch.manual_seed(1)
    state = {name: tensor.clone() for name, tensor in library.create_model("test_vit").state_dict().items()}
    content = safetensors.torch.save(state)
    repository = HubRepository({"model.safetensors": content, "config.json": b"{}"})
    hub.repositories["timm/test_vit.r160_in1k"] = repository
    assert run(root, "timm:test_vit") == 0
    found = find(root, "timm:test_vit")
    assert (found.reference, found.aliases) == ("timm:test_vit.r160_in1k", ("timm:test_vit",))
    assert (found.folder / "model.safetensors").read_bytes() == content
    facts = {"classes": 1000, "channels": 3, "image_size": 160}
    assert found.record == {"sha256": found.sha256, "aliases": ["timm:test_vit"], "facts": facts}
    hub.requests.clear()
    assert run(root, "timm:test_vit.r160_in1k") == 0
    assert hub.requests == []


def test_torchvision_is_converted_once(
    hub: Hub, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(1)
    theirs = from_torchvision.build("squeezenet1_1", 1000, 224, pretrained=True)
    torch.save(theirs.state_dict(), tmp_path / "net.pth")
    content = (tmp_path / "net.pth").read_bytes()
    name = f"squeezenet1_1-{hashlib.sha256(content).hexdigest()[:8]}.pth"
    hub.repositories["plain/files"] = HubRepository({name: content, "bad-00000000.pth": content})
    real = from_torchvision.published

    def published(architecture: str, tag: str | None) -> Any:
        weights = real(architecture, tag)
        moved = SimpleNamespace(name=weights.name, meta=weights.meta, url=f"{hub.url}/{address}")
        moved.transforms = weights.transforms
        return moved

    address = "bad-00000000.pth"
    monkeypatch.setattr(from_torchvision, "published", published)
    assert run(root, "torchvision:squeezenet1_1") == pull.FAILED
    assert "00000000 were promised: it was deleted" in capsys.readouterr().err
    address = name
    hub.break_after = [1_000_000]
    assert run(root, "torchvision:squeezenet1_1") == 0
    assert hub.requests[-1] == (f"/{name}", "bytes=1000000-")
    found = find(root, "torchvision:squeezenet1_1.IMAGENET1K_V1")
    assert set(found.files) == {"model.safetensors"}
    assert (found.config["image_size"], found.license) == (224, None)
    shutil.rmtree(root)
    hub.requests.clear()
    assert run(root, "torchvision:squeezenet1_1", "--from", str(tmp_path / "net.pth")) == 0
    assert (hub.requests, find(root, "torchvision:squeezenet1_1").sha256) == ([], found.sha256)
    monkeypatch.undo()
    ours = torchvision(1000, 3, architecture="squeezenet1_1", pretrained=found.folder).state_dict()
    assert all(torch.equal(ours[key], tensor) for key, tensor in theirs.state_dict().items())


def test_a_pickle_with_code_is_not_read(
    hub: Hub, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    torch.save({"a": Fraction(1, 2)}, tmp_path / "evil.pth")
    hub.repositories["plain/files"] = HubRepository({"evil.pth": (tmp_path / "evil.pth").read_bytes()})
    file = origins._pickle_at(f"{hub.url}/evil.pth")
    stated = SimpleNamespace(
        hf_hub_id=None, num_classes=10, input_size=(3, 32, 32), mean=(0.5,), std=(0.5,),
        interpolation="bicubic", crop_pct=1.0, url=file.url, license="mit", tag="", has_weights=True,
    )  # fmt: skip
    monkeypatch.setattr(origins, "_timm_config", lambda reference: stated)
    assert run(root, "timm:evil") == 2
    assert "cannot be read as tensors and plain values alone: it has fractions" in capsys.readouterr().err
    assert listed(root) == []
