"""Trees of published data sets: a stranger's tree names files below a folder, and nothing else."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from assay.service.contract.errors import NotFound
from assay.service.files.data_store import (
    MAX_BYTES,
    MAX_FILES,
    DataStore,
    PublishedSet,
    TreeFile,
    path_fault,
    published_set,
    read_tree,
)

SHA = "a" * 64
RECORD = {"name": "birds", "sha256": SHA, "files": 1, "bytes": 1, "published_at": "", "tenants": None}


def record(**changes: Any) -> PublishedSet:
    return published_set({**RECORD, **changes})


def tree(*paths: str) -> list[bytes]:
    return [TreeFile(path, 1, SHA).line for path in paths]


def test_a_tree_gives_its_files() -> None:
    paths = ["a b.png", "crow/1.png", "crow/é.png", "wren/2.png"]
    assert [one.path for one in read_tree(tree(*paths))] == paths


@pytest.mark.parametrize(
    "path",
    [
        "../x",
        "a/../../x",
        "/etc/passwd",
        "a//b",
        "a/./b",
        ".hidden/x",
        "a/.assay-staged",
        "~root/x",
        "c:/x",
        "a\\b",
        "a\rb",
        "a\x00b",
        "fdp.\u202egnp",  # shown as fdp.png
        "a\u200bb",
        "a\u2028b",
        " a",
        "a/b ",
        "x" * 256,
        "/".join(["x" * 200] * 6),
        "",
    ],
)
def test_a_hostile_path_is_refused(path: str) -> None:
    assert path_fault(path) is not None
    with pytest.raises(ValueError, match="line 1 of the tree"):
        list(read_tree([f"{SHA} 1 {path}\n".encode()]))
    with pytest.raises(ValueError, match="the name"):
        record(name=path)


@pytest.mark.parametrize(
    "line",
    [
        b"a" * 63 + b" 1 x\n",
        SHA.encode() + b" -1 x\n",
        SHA.encode() + b" 01 x\n",
        SHA.encode() + b" 9999999999999999 x\n",
        SHA.encode() + b" 1 x",
        SHA.encode() + b" 1 \xff\n",
        SHA.upper().encode() + b" 1 x\n",
        SHA.encode() + b" 1 " + b"x/" * 10_000 + b"y\n",
    ],
)
def test_a_line_of_another_form_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match="line 1 of the tree"):
        list(read_tree([line]))


def test_a_name_is_there_once_in_every_form() -> None:
    with pytest.raises(ValueError, match=r"line 2 .* not after"):
        list(read_tree(tree("x", "x")))
    with pytest.raises(ValueError, match=r"line 2 .* not after"):
        list(read_tree(tree("y", "x")))
    with pytest.raises(ValueError, match="another form"):
        list(read_tree(tree("e\u0301.png", "\u00e9.png")))


@pytest.mark.parametrize(
    "changes",
    [
        {"files": 0},
        {"files": MAX_FILES + 1},
        {"bytes": MAX_BYTES + 1},
        {"bytes": -1},
        {"files": True},
        {"bytes": "1"},
        {"sha256": "../../x"},
        {"sha256": SHA + "\n"},
        {"name": None},
        {"name": "é" * 100},
        {"tenants": "alice"},
        {"tenants": [1]},
    ],
)
def test_a_record_of_other_facts_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"birds|name|tenants|no published"):
        record(**changes)
    with pytest.raises(TypeError):
        record(more=1)


def write(root: Path, key: str, **changes: Any) -> None:
    (root / "sets").mkdir(exist_ok=True)
    (root / "sets" / f"{key}.json").write_text(json.dumps({**RECORD, **changes}))


def test_a_tenant_sees_its_sets_alone(tmp_path: Path) -> None:
    write(tmp_path, "birds")
    write(tmp_path, "secret%2Fval", name="secret/val", tenants=["alice"])
    (tmp_path / "sets" / "broken.json").write_text("[")
    write(tmp_path, "other", name="elsewhere")
    store = DataStore(tmp_path)
    assert [one.name for one in store.sets("bob")] == ["birds"]
    assert [one.name for one in store.sets("alice")] == ["birds", "secret/val"]
    assert store.find("secret/val", "alice").tenants == ("alice",)
    for name in ("secret/val", "none", "../sets/birds"):
        with pytest.raises(NotFound, match="is published; there"):
            store.find(name, "bob")


def test_an_unknown_name_reads_few_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(100):
        write(tmp_path, f"set-{number:03d}", name=f"set-{number:03d}", tenants=["alice"])
    write(tmp_path, "wren", name="wren")
    store, read, one = DataStore(tmp_path), list[Path](), DataStore._read
    monkeypatch.setattr(DataStore, "_read", staticmethod(lambda path: read.append(path) or one(path)))
    with pytest.raises(NotFound, match="there is wren") as told:
        store.find("wrens", "bob")
    assert "set-" not in str(told.value)
    assert len(read) < 70
    with pytest.raises(NotFound, match="there is set-050"):
        store.find("set-050x", "alice")


def test_a_content_is_of_a_file_of_the_set_and_no_link(tmp_path: Path) -> None:
    store, one = DataStore(tmp_path), record()
    digests = sorted(bytes([n]) * 32 for n in range(5, 250, 7))
    (tmp_path / "trees").mkdir()
    (tmp_path / "trees" / f"{SHA}.index").write_bytes(b"".join(digests))
    for n in range(250):
        sha256 = (bytes([n]) * 32).hex()
        if bytes.fromhex(sha256) in digests:
            assert store.checked(one, sha256) == sha256
        else:
            with pytest.raises(NotFound, match="no file of the data set"):
                store.checked(one, sha256)
    with pytest.raises(NotFound):
        store.checked(one, "../../etc/passwd")
    sha256 = digests[0].hex()
    with pytest.raises(NotFound, match="not in the store"):
        store.open_blob(one, sha256)
    blob = tmp_path / "blobs" / sha256[:2] / sha256
    blob.parent.mkdir(parents=True)
    os.symlink("/etc/passwd", blob)
    with pytest.raises(NotFound, match="not in the store"):
        store.open_blob(one, sha256)
    with pytest.raises(NotFound, match="tree"):
        store.open_tree(one)
