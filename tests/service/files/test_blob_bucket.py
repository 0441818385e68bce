"""Contents in a bucket of a real S3 server: put once, found by their hash, fetched without a key."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from assay.service.files import blob_bucket
from assay.service.files.blob_bucket import BlobBucket
from assay.service.files.file_store import StoreAway
from assay.service.files.presigned import S3Place
from tests.support.object_stores import local_path, new_bucket

CONTENT = bytes(range(256)) * 40
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def place(s3_server: str) -> S3Place:
    return new_bucket(s3_server)


def add(bucket: BlobBucket, file: Path) -> str:
    return bucket.add(file, file.stat().st_size, file.stat().st_mtime_ns)


def test_a_content_is_added_found_and_removed(place: S3Place, tmp_path: Path) -> None:
    bucket = BlobBucket(place)
    assert not bucket.holds(SHA256, len(CONTENT))
    assert add(bucket, local_path(tmp_path, CONTENT)) == SHA256
    assert (bucket.size(SHA256), bucket.holds(SHA256, len(CONTENT)), bucket.holds(SHA256, 3)) == (
        len(CONTENT),
        True,
        False,
    )
    with bucket.open(SHA256) as file:
        assert file.read() == CONTENT
    address = bucket.address(SHA256)
    assert address is not None
    assert httpx.get(address, headers={"Range": "bytes=5-"}, timeout=60).content == CONTENT[5:]
    bucket.remove([SHA256])
    with pytest.raises(FileNotFoundError):
        bucket.open(SHA256)


def test_a_content_that_is_there_is_not_put_again(
    place: S3Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = BlobBucket(place)
    add(bucket, local_path(tmp_path, CONTENT))
    monkeypatch.setattr(bucket._obstore, "put", None)
    assert add(bucket, local_path(tmp_path, CONTENT)) == SHA256


def test_a_file_that_changes_while_it_is_put_leaves_nothing(
    place: S3Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket, file = BlobBucket(place), local_path(tmp_path, CONTENT)
    put = bucket._obstore.put

    def changed(store: Any, key: str, content: Any, **options: Any) -> None:
        put(store, key, content, **options)
        os.utime(file, ns=(1, 1))

    monkeypatch.setattr(bucket._obstore, "put", changed)
    with pytest.raises(ValueError, match="has changed while it was read"):
        add(bucket, file)
    assert not bucket.holds(SHA256, len(CONTENT))


def test_a_bucket_that_is_away_says_no_key(place: S3Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blob_bucket, "RETRIES", 0)
    bucket = BlobBucket(replace(place, endpoint="http://127.0.0.1:9"))
    with pytest.raises(StoreAway, match="the store of contents does not answer") as told:
        bucket.size(SHA256)
    assert place.secret_access_key not in str(told.value)
