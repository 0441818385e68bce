"""Withdrawing a set deletes what no other set has, and nothing else."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from assay.service.contract.errors import NotFound
from assay.service.files.data_store import DataStore
from assay.workers.staging.scratch import Scratch
from assay.workers.staging.sources import FolderSource
from assay.workers.staging.staging import stage
from assay.workers.staging.withdrawal import unpublish, writing
from tests.workers.staging.conftest import FILES, Publish, contents


def left(data_store: DataStore) -> tuple[int, int, int]:
    """Contents, trees with their indices, and records."""
    counted = (
        sum(path.is_file() for path in (data_store.root / folder).rglob("*"))
        for folder in ("blobs", "trees", "sets")
    )
    blobs, trees, records = counted
    return blobs, trees, records


def test_contents_of_other_sets_stay(
    published: Publish, data_store: DataStore, source: FolderSource, tmp_path: Path
) -> None:
    one, other = published(), published("more", {"x.png": b"one", "y.png": b"new"})
    assert left(data_store) == (4, 4, 2)
    assert unpublish(data_store, "birds") == (one, 2)
    assert left(data_store) == (2, 2, 1)
    scratch = Scratch(tmp_path / "node")
    assert stage(scratch, source, "more") == other
    assert contents(scratch.root / "more") == {"x.png": b"one", "y.png": b"new"}
    assert unpublish(data_store, "more") == (other, 2)
    assert left(data_store) == (0, 0, 0)
    with pytest.raises(NotFound, match="no data set 'more' is published"):
        unpublish(data_store, "more")


def test_a_set_under_two_names_stays_under_one(published: Publish, data_store: DataStore) -> None:
    published("a", FILES)
    published("b", FILES)
    assert unpublish(data_store, "a")[1] == 0
    assert left(data_store) == (3, 2, 1)


def test_what_was_published_anew_or_left_behind_goes_too(published: Publish, data_store: DataStore) -> None:
    published("a", {"x": b"old"})
    published("a", {"x": b"new"})
    published("killed", {"x": b"killed"})
    published("kept", {"x": b"kept"})
    data_store.record("killed").unlink()  # as an unpublish that was killed then
    assert unpublish(data_store, "a")[1] == 3
    assert left(data_store) == (1, 2, 1)


def test_a_record_that_cannot_be_read_keeps_everything(published: Publish, data_store: DataStore) -> None:
    published("a", {"x": b"a"})
    published("b", {"x": b"b"})
    data_store.record("b").write_text("[")
    with pytest.raises(ValueError, match=r"b\.json is no record of a published set"):
        unpublish(data_store, "a")
    assert left(data_store) == (2, 4, 2)


def test_it_waits_for_those_who_publish(published: Publish, data_store: DataStore) -> None:
    published()
    withdrawal = threading.Thread(target=unpublish, args=(data_store, "birds"))
    with writing(data_store, alone=False):
        published("others", {"x": b"x"})  # several may publish at once
        withdrawal.start()
        withdrawal.join(0.2)
        assert data_store.find("birds").files == 4
    withdrawal.join(60)
    assert [one.name for one in data_store.sets()] == ["others"]
