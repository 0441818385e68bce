"""Pulled weights travel by the store: the same record, the same digest, and only under their reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from assay.service.contract.errors import NotFound, WeightsUnavailable
from assay.service.files.data_store import DataStore, published_set
from assay.workers.staging.pulled import (
    find_weights,
    is_reference,
    publish_weights,
    stage_weights,
)
from assay.workers.staging.scratch import Scratch, StagingFailed
from assay.workers.staging.sources import FolderSource
from assay.workers.weights.pulled import PulledWeights, checked, find, folder_below, name_commit
from tests.support.pulled import pull_tensors
from tests.workers.staging.conftest import Publish

TIMM = "timm:net.a1"
COMMIT = "c" * 40


@pytest.fixture
def pulled(tmp_path: Path) -> PulledWeights:
    return pull_tensors(tmp_path / "weights", TIMM, {"x": torch.ones(3)}, aliases=["timm:net"])


@pytest.fixture
def node(tmp_path: Path) -> Scratch:
    return Scratch(tmp_path / "node")


def given(tmp_path: Path, data_store: DataStore, reference: str = TIMM, **changes: Any) -> Any:
    return publish_weights(tmp_path / "weights", reference, data_store, state=tmp_path / "state", **changes)


@pytest.mark.parametrize("named", [TIMM, "timm:net"])
def test_weights_are_the_same_on_a_node(
    pulled: PulledWeights,
    node: Scratch,
    data_store: DataStore,
    source: FolderSource,
    tmp_path: Path,
    named: str,
) -> None:
    one = given(tmp_path, data_store, named)
    assert (one.name, one.pulled) == (TIMM, pulled.record)
    assert published_set(one.record) == one
    assert stage_weights(node, source, named) == one
    there = checked(node.root, TIMM, pulled.sha256)
    assert (there.record, there.origin) == (pulled.record, pulled.origin)
    assert there.folder == node.root / "timm" / "net.a1"
    assert {*node.staged()} == {"timm/net.a1"}
    assert stage_weights(node, source, named) == one


def test_a_commit_of_the_hub_has_its_own_place(
    node: Scratch, data_store: DataStore, source: FolderSource, tmp_path: Path
) -> None:
    reference = f"hf:org/net@{COMMIT}"
    made = pull_tensors(tmp_path / "weights", reference, {"x": torch.ones(2)}, revision=COMMIT)
    name_commit(tmp_path / "weights", "org/net", "main", COMMIT)
    one = given(tmp_path, data_store, "hf:org/net")
    assert one.name == reference
    stage_weights(node, source, "hf:org/net")
    for named in (reference, "hf:org/net", "hf:org/net@main"):
        assert find(node.root, named).sha256 == made.sha256


def test_only_tenants_that_may_see_weights(
    pulled: PulledWeights, data_store: DataStore, published: Publish, tmp_path: Path
) -> None:
    given(tmp_path, data_store, tenants=["alice"])
    published()
    assert data_store.weights("alice") == {TIMM: pulled.record}
    assert data_store.weights("bob") == {}


def test_damaged_weights_are_not_published(
    pulled: PulledWeights, data_store: DataStore, tmp_path: Path
) -> None:
    (pulled.folder / "model.safetensors").write_bytes(b"x")
    with pytest.raises(WeightsUnavailable, match="are damaged"):
        given(tmp_path, data_store)
    assert data_store.sets() == []


def test_what_is_published_is_weights_or_data(
    published: Publish, source: FolderSource, node: Scratch
) -> None:
    published("timm:data")
    with pytest.raises(StagingFailed, match="but not as weights"):
        find_weights(source, "timm:data")
    with pytest.raises(NotFound):
        stage_weights(node, source, "timm:none")


@pytest.mark.parametrize(
    "changes", [{"sha256": 1}, {"aliases": "x"}, {"more": 1}, {"facts": {"classes": "9"}}]
)
def test_a_record_of_other_facts_is_refused(
    pulled: PulledWeights, data_store: DataStore, tmp_path: Path, changes: dict[str, Any]
) -> None:
    record = given(tmp_path, data_store).record
    with pytest.raises(ValueError, match="no published weights"):
        published_set({**record, "pulled": {**record["pulled"], **changes}})
    with pytest.raises(ValueError, match="no reference to weights"):
        published_set({**record, "name": "birds"})


def test_references_are_told_from_folders() -> None:
    assert [is_reference(name) for name in (TIMM, "hf:a/b", "birds", "timm", "other:x")] == [
        True,
        True,
        False,
        False,
        False,
    ]
    with pytest.raises(ValueError, match="does not have the form"):
        folder_below("hf:../../etc@x")
    with pytest.raises(ValueError, match="names no commit"):
        folder_below("hf:a/b")
