"""The command: what it publishes, stages and lists, and what it says of wrong settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.workers.staging.command import DataRequest, bytes_of, main
from assay.workers.weights.pulled import checked
from tests.support.pulled import pull_tensors
from tests.workers.staging.conftest import FILES, contents, fill


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_STATE", str(tmp_path / "state"))


def asked(action: str, *names: str, **changes: Any) -> DataRequest:
    names_ = ("data_root", "data_store", "weights_root")
    settings = {name: str(changes.pop(name)) for name in names_ if name in changes}
    values: Any = {"action": action, "names": [*names], "tenants": [], "limit": None, "json": True}
    return {**values, "settings": {"gateway": None, **settings}, **changes}


def test_a_set_is_published_staged_and_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(tmp_path / "origin" / "birds")
    node: Any = {"data_root": tmp_path / "node", "data_store": tmp_path / "store"}
    assert main(asked("publish", "birds", data_root=tmp_path / "origin", data_store=tmp_path / "store")) == 0
    (published,) = json.loads(capsys.readouterr().out)
    assert main(asked("stage", "birds", limit="1 GB", **node)) == 0
    assert json.loads(capsys.readouterr().out) == [published]
    assert contents(tmp_path / "node" / "birds") == FILES
    assert main(asked("list", **node)) == 0
    assert json.loads(capsys.readouterr().out) == {"here": [published], "store": [published]}
    assert main(asked("list", json=False, **node)) == 0
    line = f"  birds  3.0 MB in 4 files  sha256 {published['sha256'][:16]}"
    assert capsys.readouterr().out.splitlines() == [
        f"staged below {tmp_path / 'node'}:",
        line,
        "in the store:",
        line,
    ]
    assert main(asked("list", json=False, data_root=tmp_path / "node")) == 0
    assert "no store of data: set ASSAY_GATEWAY" in capsys.readouterr().out


def test_a_small_set_is_told_in_a_unit_that_fits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(tmp_path / "origin" / "notes", {"1.txt": b"some text"})
    given: Any = {"data_root": tmp_path / "origin", "data_store": tmp_path / "store"}
    assert main(asked("publish", "notes", json=False, **given)) == 0
    assert capsys.readouterr().out.startswith("notes  9 bytes in 1 file  sha256 ")


def test_weights_are_published_staged_and_withdrawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pull_tensors(tmp_path / "pulled", "timm:net.a1", {"x": torch.ones(3)})
    node: Any = {"weights_root": tmp_path / "node", "data_store": tmp_path / "store"}
    assert main(asked("publish", "timm:net.a1", **{**node, "weights_root": tmp_path / "pulled"})) == 0
    assert main(asked("stage", "timm:net.a1", **node)) == 0
    assert checked(tmp_path / "node", "timm:net.a1", None).name == "net"
    capsys.readouterr()
    assert main(asked("list", **node)) == 0
    told = json.loads(capsys.readouterr().out)
    assert [[one["name"] for one in told[place]] for place in ("here", "store")] == [
        ["timm/net.a1"],
        ["timm:net.a1"],
    ]
    assert main(asked("unpublish", "timm:net.a1", **node)) == 0
    assert "timm:net.a1 is published no longer; 2 contents were deleted" in capsys.readouterr().err
    assert main(asked("unpublish", "timm:net.a1", **node)) == 1
    assert "no data set 'timm:net.a1' is published" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("request_", "code", "said"),
    [
        (asked("stage", "birds", limit="much"), 2, "--limit: 'much' given; allowed"),
        (asked("stage", "birds"), 1, "no data root: set ASSAY_DATA_ROOT"),
        (asked("unpublish", "birds"), 1, "no store of data: set ASSAY_DATA_STORE"),
        (asked("publish", "birds", data_root="/tmp"), 1, "no store of data: set ASSAY_DATA_STORE"),
        (asked("list", settings={"gateway": "ftp://x"}), 2, "ASSAY_GATEWAY"),
    ],
)
def test_what_is_wrong_is_named(
    capsys: pytest.CaptureFixture[str], request_: DataRequest, code: int, said: str
) -> None:
    assert main(request_) == code
    assert said in capsys.readouterr().err


def test_an_unknown_set_fails_with_what_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(tmp_path / "birds")
    place: Any = {"data_root": tmp_path, "data_store": tmp_path / "store"}
    assert main(asked("publish", "birds", **place)) == 0
    assert main(asked("stage", "bird", **place)) == 1
    assert "no data set 'bird' is published; there is birds" in capsys.readouterr().err
    assert main(asked("publish", "none", **place)) == 1
    assert "there is no folder 'none'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("200GB", 200 * 10**9), ("1.5 GiB", 3 * 2**29), ("7", 7), ("2tb", 2 * 10**12)],
)
def test_sizes_have_units(text: str, size: int) -> None:
    assert bytes_of(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1", "1e9", "1 EB", "9" * 20])
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="given; allowed"):
        bytes_of(text)
