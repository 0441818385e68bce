"""The weights folder: finding, pinning by hash, and damage."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import timm as library
import torch

from assay.models.from_timm import timm
from assay.service.contract.errors import WeightsUnavailable
from assay.service.contract.weights.pulled import parse_reference
from assay.workers.jobs.failures import describe
from assay.workers.weights import pulled
from assay.workers.weights.pulled import checked, find, keep, listed, name_commit, origin_of
from tests.support.pulled import pull_tensors

TENSORS = {"a": torch.arange(4.0)}
COMMIT, OTHER = "a" * 40, "b" * 40


def test_the_layout_and_the_record(tmp_path: Path) -> None:
    made = pull_tensors(tmp_path, "timm:resnet50.a1_in1k", TENSORS, aliases=["timm:resnet50"])
    assert made.folder == tmp_path / "timm" / "resnet50.a1_in1k"
    record = json.loads((made.folder / "pulled.json").read_text())
    assert record["reference"] == "timm:resnet50.a1_in1k"
    assert record["files"]["model.safetensors"]["size"] == (made.folder / "model.safetensors").stat().st_size
    assert record["sha256"] == made.sha256 == find(tmp_path, "timm:resnet50.a1_in1k").sha256
    assert find(tmp_path, "timm:resnet50") == made
    assert made.origin == {
        "reference": "timm:resnet50.a1_in1k",
        "revision": None,
        "license": "apache-2.0",
        "sha256": made.sha256,
    }


def test_the_digest_is_of_names_and_contents() -> None:
    one = {"b": {"sha256": "1"}, "a": {"sha256": "2"}}
    assert pulled.digest_of_files(one) == pulled.digest_of_files(dict(reversed(one.items())))
    assert pulled.digest_of_files(one) != pulled.digest_of_files({"a": {"sha256": "1"}, "b": {"sha256": "2"}})


def test_commits_are_found_by_the_names_that_they_were_pulled_by(tmp_path: Path) -> None:
    for commit in (COMMIT, OTHER):
        pull_tensors(tmp_path, f"hf:org/net@{commit}", TENSORS, revision=commit)
    name_commit(tmp_path, "org/net", "main", COMMIT)
    name_commit(tmp_path, "org/net", "v1", OTHER)
    assert find(tmp_path, "hf:org/net").revision == COMMIT
    assert find(tmp_path, "hf:org/net@main").folder == tmp_path / "hf" / "org" / "net" / COMMIT
    assert find(tmp_path, "hf:org/net@v1").revision == find(tmp_path, f"hf:org/net@{OTHER}").revision == OTHER
    assert [one.reference for one in listed(tmp_path)] == [f"hf:org/net@{COMMIT}", f"hf:org/net@{OTHER}"]


def test_of_two_defaults_the_one_pulled_last_is_meant(tmp_path: Path) -> None:
    first = pull_tensors(tmp_path, "timm:net.old", TENSORS, aliases=["timm:net"])
    path = first.folder / "pulled.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"pulled_at": "2020-01-01T00:00:00Z"}))
    pull_tensors(tmp_path, "timm:net.new", TENSORS, aliases=["timm:net"])
    assert find(tmp_path, "timm:net").reference == "timm:net.new"


def test_the_message_ends_with_the_command(tmp_path: Path) -> None:
    for reference in ("timm:resnet50", "torchvision:resnet50.IMAGENET1K_V2", "hf:org/net@v1"):
        with pytest.raises(WeightsUnavailable, match=rf"are not pulled: .* Run: assay pull {reference}$"):
            find(tmp_path, reference)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"reference": "timm:a.b"}'])
def test_a_folder_without_a_whole_record_is_not_pulled(tmp_path: Path, content: str) -> None:
    made = pull_tensors(tmp_path, "timm:a.b", TENSORS)
    (made.folder / "pulled.json").write_text(content)
    assert listed(tmp_path) == []
    again = pull_tensors(tmp_path, "timm:a.b", TENSORS)
    assert listed(tmp_path) == [again]
    assert {path.name for path in (tmp_path / "timm").iterdir()} == {"a.b"}


@pytest.mark.parametrize(
    "text",
    [
        "resnet50",
        "timm:",
        "timm:a/b",
        "timm:../x",
        "hf:gpt2",
        "hf:a/../b",
        "hf:../b",
        "hf:a/b@../c",
        "hf:a/b/c",
    ],
)
def test_what_is_no_reference_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no reference|does not have the form"):
        parse_reference(text)


def test_damage_and_other_content_are_seen(tmp_path: Path) -> None:
    made = pull_tensors(tmp_path, "timm:a.b", TENSORS)
    assert checked(tmp_path, "timm:a.b", made.sha256) == made
    with pytest.raises(
        WeightsUnavailable, match=f"have the content {made.sha256}, the spec names {'0' * 64}"
    ):
        checked(tmp_path, "timm:a.b", "0" * 64)
    file = made.folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(
        WeightsUnavailable, match=r"are damaged: model.safetensors has the sha256 .*assay pull"
    ):
        checked(tmp_path, "timm:a.b", None)
    file.unlink()
    with pytest.raises(WeightsUnavailable, match=r"model\.safetensors is missing"):
        checked(tmp_path, "timm:a.b", None)


def test_missing_weights_end_a_job_at_once(tmp_path: Path) -> None:
    with pytest.raises(WeightsUnavailable) as caught:
        find(tmp_path, "timm:resnet50")
    failure = describe(caught.value)
    assert (failure["error_type"], failure["retry"]) == ("weights_unavailable", False)
    assert failure["message"].endswith("assay pull timm:resnet50")


def test_the_origin_outlives_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_WEIGHTS_ROOT", str(tmp_path))
    monkeypatch.setattr(pulled, "_origins", {})
    made = pull_tensors(tmp_path, "timm:test_vit.r160_in1k", TENSORS)
    params = {"architecture": "test_vit", "tag": "r160_in1k", "image_size": None}
    model: Any = {"name": "timm", "params": params, "weights": {"pulled": True, "sha256": made.sha256}}
    assert origin_of(model) == made.origin
    (made.folder / "pulled.json").unlink()
    assert origin_of(model) == made.origin
    assert origin_of(model | {"weights": None}) is None


def test_reading_needs_no_torch() -> None:
    program = "import sys, assay.workers.weights.pulled; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("channels", [3, 1])
@pytest.mark.parametrize("architecture", ["test_vit.r160_in1k", "test_convnext.r160_in1k"])
def test_timm_loads_a_pulled_file_bit_for_bit(tmp_path: Path, architecture: str, channels: int) -> None:
    """As `pretrained=True` does, with its adaption of the first layer and of the head."""
    torch.manual_seed(1)
    theirs = library.create_model(architecture).state_dict()
    made = pull_tensors(
        tmp_path, f"timm:{architecture}", {key: value.clone() for key, value in theirs.items()}
    )
    name, _, tag = architecture.partition(".")
    ours = timm(1000, channels, architecture=name, tag=tag, pretrained=made.folder).state_dict()
    overlay = {"file": str(made.folder / "model.safetensors")}
    wanted = library.create_model(
        architecture, pretrained=True, in_chans=channels, pretrained_cfg_overlay=overlay
    ).state_dict()
    assert ours.keys() == wanted.keys()
    assert all(torch.equal(ours[key], wanted[key]) for key in wanted)
    if channels == 3:
        assert all(torch.equal(ours[key], theirs[key]) for key in theirs)


def test_keep_replaces_what_was_there(tmp_path: Path) -> None:
    pull_tensors(tmp_path, "timm:a.b", TENSORS)
    staged = tmp_path / "staged"
    staged.mkdir()
    (staged / "other.txt").write_text("new")
    keep(staged, tmp_path, parse_reference("timm:a.b"))
    assert {path.name for path in (tmp_path / "timm" / "a.b").iterdir()} == {"other.txt", "pulled.json"}
