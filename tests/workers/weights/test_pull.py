"""`assay pull` against a hub on localhost: once, resumed, compared, and with short errors."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import safetensors.torch
import timm as library
import torch
from huggingface_hub import constants

from assay.models import from_torchvision
from assay.models.from_torchvision import torchvision
from assay.service.cli.arguments import add_pull
from assay.service.cli.commands import request_of
from assay.workers.weights import download, origins, pull
from assay.workers.weights.hub import ALLOWED
from assay.workers.weights.pulled import find, listed
from tests.support.hub_server import COMMIT, Hub, HubRepository, hub_server

CONFIG = {
    "architectures": ["ViTForImageClassification"],
    "model_type": "vit",
    "image_size": 32,
    "num_channels": 3,
    "id2label": {"10": "k", "2": "c", "0": "a"},
}
TENSORS = {"a": torch.arange(200_000.0)}
BIG = safetensors.torch.save(TENSORS)
MODEL = HubRepository(
    {
        "config.json": json.dumps(CONFIG).encode(),
        "model.safetensors": BIG,
        "preprocessor_config.json": b'{"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}',
        "modeling_vit.py": b"import os",
        "pytorch_model.bin": b"pickle",
        "onnx/model.safetensors": b"other",
    }
)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    with hub_server() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub-cache"))
        monkeypatch.delenv("HF_TOKEN", raising=False)
        server.repositories["org/net"] = MODEL
        yield server


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "weights"


def run(root: Path, *arguments: str) -> int:
    parser = argparse.ArgumentParser()
    add_pull(parser.add_subparsers())
    given = parser.parse_args(["pull", "--weights-root", str(root), *arguments])
    return pull.main(json.loads(json.dumps(request_of(given))))


def files(hub: Hub) -> list[str]:
    return [path.rpartition("/")[2] for path, _ in hub.requests if "/resolve/" in path]


def test_a_repository_is_pulled_once(hub: Hub, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(root, "hf:org/net") == 0
    said = capsys.readouterr().err
    assert f"hf:org/net@{COMMIT} from {hub.url}/org/net (license: apache-2.0)" in said
    assert "model.safetensors  100 %  0.8 of 0.8 MB" in said
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


def test_a_token_opens_a_gated_repository(hub: Hub, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.repositories["org/gated"] = HubRepository(MODEL.files, gated=True)
    hub.tokens = {"Bearer hf_secret"}
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert run(root, "hf:org/gated") == 0
    assert all(
        "hf_secret" not in path.read_text(errors="ignore") for path in root.rglob("*") if path.is_file()
    )


def test_a_full_disk_is_said(
    hub: Hub, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(download.shutil, "disk_usage", lambda path: SimpleNamespace(free=100_000))
    assert run(root, "hf:org/net") == pull.FAILED
    assert "has 0 MB left, 1 MB are needed" in capsys.readouterr().err


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
    assert f"hf:me/tiny@{revision}  0.8 MB in 4 files" in capsys.readouterr().out
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
    assert lines[-1].startswith(f"pulled hf:org/net@{COMMIT}  0.8 MB in 3 files  sha256 ")
    assert "\r" not in done.stderr
    done = subprocess.run(
        [*command, "--list"], env=environment, capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.stdout.startswith(f"hf:org/net@{COMMIT}  0.8 MB")
