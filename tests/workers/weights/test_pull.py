"""`assay pull` against a hub on localhost: once, resumed, compared, and with short errors."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from assay.workers.weights import pull
from assay.workers.weights.pulled import find, listed
from tests.support.hub_pulls import BIG, MODEL, files, run
from tests.support.hub_server import COMMIT, Hub, HubRepository


def test_a_repository_is_pulled_once(hub: Hub, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(root, "hf:org/net") == 0
    said = capsys.readouterr().err
    assert f"hf:org/net@{COMMIT} from {hub.url}/org/net (license: apache-2.0)" in said
    assert re.search(r"model\.safetensors  100 %  (800\.\d) of \1 KB", said)
    found = find(root, "hf:org/net")
    assert found.folder == root / "hf" / "org" / "net" / COMMIT
    assert set(found.files) == {"config.json", "model.safetensors", "preprocessor_config.json"}
    assert found.files["model.safetensors"]["sha256"] == hashlib.sha256(BIG).hexdigest()
    assert (found.license, found.revision, found.repository) == ("apache-2.0", COMMIT, f"{hub.url}/org/net")
    assert found.config == {
        "architecture": "ViTForImageClassification",
        "model_type": "vit",
        "task": "image-classification",
        "classes": 3,
        "labels": ["a", "c", "k"],
        "image_size": 32,
        "channels": 3,
        "mean": [0.5, 0.5, 0.5],
        "std": [0.5, 0.5, 0.5],
    }
    assert json.loads((root / "hf" / "org" / "net" / "refs.json").read_text()) == {"main": COMMIT}
    before = files(hub)
    assert run(root, "hf:org/net", f"hf:org/net@{COMMIT}") == 0
    assert files(hub) == before
    assert capsys.readouterr().err.count(f"already pulled: hf:org/net@{COMMIT}") == 2
    assert [path.name for path in (root / ".partial").iterdir()] == []


def test_no_network_is_said_and_what_is_pulled_stays_usable(
    hub: Hub, root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(root, "hf:org/net") == 0
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert run(root, "hf:org/net") == 0
    said = capsys.readouterr().err
    assert "127.0.0.1:9 cannot be reached" in said
    assert "it is not known whether hf:org/net has moved" in said
    assert run(root, "hf:org/other") == pull.UNREACHABLE


@pytest.mark.parametrize(
    ("reference", "code", "message"),
    [
        ("hf:org/pickles", 1, "has no model.safetensors (it has pytorch_model.bin): pickles can run code"),
        (
            "hf:org/none",
            1,
            "there is no repository org/none on the hub, or none for someone without HF_TOKEN",
        ),
        ("hf:org/net@v9", 1, "org/net has no branch, tag or commit 'v9'"),
        ("hf:org/gated", 1, "org/gated is gated: accept its terms at "),
        ("hf:org/changed", 1, "were promised: it was deleted"),
        ("hf:org/part", 1, "lacks parts of its weights: model-00002-of-00002.safetensors"),
        ("timm:resnet5O", 2, "timm has no architecture 'resnet5O'; did you mean 'resnet50"),
        ("timm:resnet50.a1_in1", 2, "did you mean 'a1_in1k'"),
        ("timm:vit_small_patch14_dinov2", 1, "has no classifier"),
        ("torchvision:resnet5O", 2, "did you mean 'resnet50'"),
        ("resnet50", 2, "is no reference to weights; allowed: timm:NAME[.TAG]"),
    ],
)
def test_errors_say_what_is_wrong(
    hub: Hub, root: Path, reference: str, code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    index = json.dumps({"weight_map": {"a": "model-00002-of-00002.safetensors"}}).encode()
    hub.repositories |= {
        "org/pickles": HubRepository({"config.json": b"{}", "pytorch_model.bin": b"x"}),
        "org/gated": HubRepository(MODEL.files, gated=True),
        "org/part": HubRepository({"config.json": b"{}", "model.safetensors.index.json": index}),
        "org/changed": HubRepository({"config.json": b"{}", "model.safetensors": BIG}),
    }
    if reference == "hf:org/changed":
        real = hub.repositories["org/changed"]
        other = BIG[:-1] + b"x"
        hub.repositories["org/changed"] = HubRepository(
            {**real.files, "model.safetensors": Shifting(BIG, other)}
        )
    assert run(root, reference) == code
    assert message in capsys.readouterr().err
    assert listed(root) == []


class Shifting(bytes):
    """A file whose content is another when it is fetched than when it was listed."""

    def __new__(cls, listed_as: bytes, fetched: bytes) -> Shifting:
        made = super().__new__(cls, listed_as)
        made.fetched = fetched
        return made

    fetched: bytes

    def __getitem__(self, key: Any) -> Any:
        return self.fetched[key]


@pytest.mark.costly
def test_the_command_in_a_process_of_its_own(hub: Hub, root: Path, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "HF_ENDPOINT": hub.url,
        "HF_HUB_OFFLINE": "",
        "HF_HOME": str(tmp_path / "home"),
    }
    command = [sys.executable, "-m", "assay.service.cli.main", "pull"]
    environment["ASSAY_WEIGHTS_ROOT"] = str(root)
    done = subprocess.run(
        [*command, "hf:org/net"], env=environment, capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    lines = done.stderr.splitlines()
    assert lines[0] == "looking up hf:org/net"
    assert lines[-1].startswith(f"pulled hf:org/net@{COMMIT}  800.3 KB in 3 files  sha256 ")
    assert "\r" not in done.stderr
    done = subprocess.run(
        [*command, "--list"], env=environment, capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.stdout.startswith(f"hf:org/net@{COMMIT}  800.3 KB")
