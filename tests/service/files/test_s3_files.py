"""Files of jobs in an object store, against a real S3 server: whole, verified, cached, and never lost."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from assay.service.files import s3_client, s3_files
from assay.service.files.file_store import StoreAway, read_bounded
from assay.service.files.presigned import S3Place
from assay.service.files.s3_client import copy_in_parts
from assay.service.files.s3_files import S3Files
from tests.support.object_stores import Network, local_path, new_bucket

CONTENT = bytes(range(256)) * 40
SHA256 = hashlib.sha256(CONTENT).hexdigest()
JOB = "01jd3q0x5v8f7m2n9k4t6w1z0y"


@pytest.fixture
def place(s3_server: str) -> S3Place:
    return new_bucket(s3_server)


@pytest.fixture
def files(place: S3Place, tmp_path: Path) -> S3Files:
    return S3Files(place, tmp_path / "copies", 10**6)


@pytest.fixture
def network(s3_server: str) -> Iterator[Network]:
    network = Network(s3_server)
    yield network
    network.close()


@pytest.fixture
def troubled(place: S3Place, network: Network, tmp_path: Path, monkeypatch: Any) -> S3Files:
    """The same bucket over the network."""
    for name, value in {"CALL_SECONDS": 1, "RETRIES": 0, "PROBE_SECONDS": 1, "PROBED_SECONDS": 0.0}.items():
        monkeypatch.setattr(s3_files, name, value)
    monkeypatch.setattr(s3_files, "REST_SECONDS", 0.0)
    return S3Files(replace(place, endpoint=network.url), tmp_path / "others", 10**6)


def copies(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "copies").glob("*/*"))


def test_a_file_is_put_listed_read_and_removed(files: S3Files, tmp_path: Path) -> None:
    source = local_path(tmp_path, CONTENT)
    files.put(source, JOB, "x.csv", SHA256)
    assert not source.exists()
    written = files.write(JOB, "log.json", b"{}")
    assert (written["name"], written["size"], written["media_type"]) == ("log.json", 2, "application/json")
    assert ([*files.sizes(JOB)], [*files.sizes("other")]) == (["log.json", "x.csv"], [])
    assert ([*files.jobs()], files.age(JOB) < 600, files.age("other")) == ([JOB], True, 0.0)
    for _ in range(2):  # fetched, and the copy
        assert read_bounded(files, JOB, "x.csv", SHA256, 10**6) == CONTENT
    assert copies(tmp_path) == [SHA256]
    assert (tmp_path / "copies").stat().st_mode & 0o777 == 0o700
    assert read_bounded(files, JOB, "log.json", "", 9) == b"{}"
    assert copies(tmp_path) == [SHA256], "of an unknown hash there is no copy"
    files.remove(JOB, "log.json")
    with pytest.raises(FileNotFoundError):
        files.open(JOB, "log.json", "")
    assert (files.clear(JOB), files.clear(JOB), [*files.jobs()], copies(tmp_path)) == (True, False, [], [])


def test_a_large_file_goes_in_parts_and_comes_in_ranges(
    files: S3Files, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(s3_files, "PART", 5 * 2**20)
    content = os.urandom(2**20) * 11
    sha256 = hashlib.sha256(content).hexdigest()
    files.put(local_path(tmp_path, content), JOB, "w.safetensors", sha256)
    assert files.holds(JOB, "w.safetensors", sha256, len(content))
    files.fetch(JOB, "w.safetensors", sha256, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == content


def test_a_staged_file_is_placed_without_another_transfer(
    files: S3Files, tmp_path: Path, monkeypatch: Any
) -> None:
    source = local_path(tmp_path, CONTENT)
    files.stage(source)
    assert source.exists()
    for slow in ("_upload", "_read"):  # a transaction waits
        monkeypatch.setattr(files, slow, None)
    files.put(source, JOB, "w.safetensors", SHA256)
    assert (source.exists(), [*files.sizes(JOB)], [*files.sizes(s3_files.STAGING)]) == (
        False,
        ["w.safetensors"],
        [],
    )


def test_a_staged_file_that_is_too_large_for_a_copy_is_copied_in_parts(
    files: S3Files, tmp_path: Path, monkeypatch: Any
) -> None:
    part = 5 * 2**20  # S3's smallest
    content = os.urandom(2**20) * 11
    sha256 = hashlib.sha256(content).hexdigest()
    source = local_path(tmp_path, content)
    files.stage(source)
    monkeypatch.setattr(s3_files, "MAX_COPY_BYTES", part)
    monkeypatch.setattr(s3_client, "COPY_PART", part)
    monkeypatch.setattr(
        files,
        "_obstore",
        SimpleNamespace(**{name: getattr(files._obstore, name) for name in ("head", "delete", "get_range")}),
    )
    files.put(source, JOB, "w.safetensors", sha256)
    files.fetch(JOB, "w.safetensors", sha256, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == content


def test_a_copy_in_parts_that_breaks_leaves_none(files: S3Files, place: S3Place, tmp_path: Path) -> None:
    with pytest.raises(httpx.HTTPStatusError):
        copy_in_parts(place, f"{s3_files.STAGING}/none", f"{JOB}/x", 10)
    url = place.presigned("GET", "", {}, 60, query={"uploads": ""}).replace(f"/{place.prefix}/", "")
    assert "<Upload>" not in httpx.get(url, timeout=60).text
    assert [*files.sizes(JOB)] == []


def test_a_staged_file_is_read_back_ahead_of_its_transaction(
    troubled: S3Files, network: Network, tmp_path: Path
) -> None:
    source = local_path(tmp_path, CONTENT)
    network.mode = "lying"
    with pytest.raises(StoreAway, match="other bytes than were stored"):
        troubled.stage(source)
    assert source.exists()


def test_a_staged_file_that_is_not_placed_goes(files: S3Files, tmp_path: Path) -> None:
    source = local_path(tmp_path, CONTENT)
    files.stage(source)
    for _ in range(2):
        files.unstage(source)
    assert (source.exists(), [*files.sizes(s3_files.STAGING)]) == (True, [])


def test_a_taken_name_and_a_bad_name_are_refused(files: S3Files) -> None:
    files.write(JOB, "x.csv", b"1", once=True)
    with pytest.raises(FileExistsError):
        files.write(JOB, "x.csv", b"2", once=True)
    assert read_bounded(files, JOB, "x.csv", "", 9) == b"1"
    for job, name in ((JOB, "../y"), ("..", "y"), (JOB, ".probe"), ("a/b", "y")):
        with pytest.raises(OSError, match="is no name"):
            files.write(job, name, b"")


def test_a_file_is_held_by_its_content_alone(files: S3Files, place: S3Place, tmp_path: Path) -> None:
    files.write(JOB, "x.csv", CONTENT)
    other = S3Files(place, tmp_path / "elsewhere", 10**6)
    for one in (files, other):
        assert one.holds(JOB, "x.csv", SHA256, len(CONTENT))
        assert not one.holds(JOB, "x.csv", "0" * 64, len(CONTENT))
        assert not one.holds(JOB, "x.csv", SHA256, 3)
        with pytest.raises(FileNotFoundError):
            one.holds(JOB, "y.csv", SHA256, 3)


def test_a_file_that_was_replaced_is_held_no_longer(files: S3Files, place: S3Place, tmp_path: Path) -> None:
    """By this process, or by another."""
    other, content = S3Files(place, tmp_path / "elsewhere", 10**6), CONTENT[::-1]
    for writer in (files, other):
        files.write(JOB, "x.csv", CONTENT)
        writer.write(JOB, "x.csv", content)
        assert not files.holds(JOB, "x.csv", SHA256, len(CONTENT))
        assert files.holds(JOB, "x.csv", hashlib.sha256(content).hexdigest(), len(content))


def test_the_cache_keeps_the_files_that_were_used_last(place: S3Place, tmp_path: Path) -> None:
    files = S3Files(place, tmp_path / "copies", 25)
    hashes = [files.write(JOB, f"{name}.csv", name.encode() * 10)["sha256"] for name in "abc"]
    for age, name, sha256 in zip((30, 20, 10), "abc", hashes, strict=True):
        files.open(JOB, f"{name}.csv", sha256).close()
        if name != "c":
            path = tmp_path / "copies" / JOB / sha256
            os.utime(path, (time.time() - age, time.time() - age))
    assert copies(tmp_path) == sorted(hashes[1:])


def test_what_was_put_by_another_hash_is_no_copy(files: S3Files, tmp_path: Path) -> None:
    files.write(JOB, "x.csv", b"other bytes")
    with pytest.raises(StoreAway, match="other bytes than were stored"):
        files.open(JOB, "x.csv", SHA256)
    assert copies(tmp_path) == []
    assert (files.fault(), files.wrong_files()) == ("", 1), "a wrong file is no fault of the store"


@pytest.mark.parametrize("mended", ["read", "held", "removed", "cleared", "put"])
def test_a_wrong_file_is_told_until_it_is_right(files: S3Files, tmp_path: Path, mended: str) -> None:
    for name in ("x.csv", "y.csv"):
        files.write(JOB, name, b"other bytes")
        with pytest.raises(StoreAway, match="other bytes than were stored"):
            files.open(JOB, name, SHA256)
    assert files.wrong_files() == 2
    sha256 = hashlib.sha256(b"other bytes").hexdigest()
    if mended == "read":
        files.fetch(JOB, "x.csv", sha256, tmp_path / "copy")
    elif mended == "held":
        files._put.clear()
        assert files.holds(JOB, "x.csv", sha256, len(b"other bytes"))
    elif mended == "put":
        files.put(local_path(tmp_path, CONTENT), JOB, "x.csv", SHA256)
    elif mended == "removed":
        files.remove(JOB, "x.csv")
    else:
        files.clear(JOB)
    assert files.wrong_files() == (0 if mended == "cleared" else 1)


def test_a_store_that_is_down_loses_nothing(troubled: S3Files, network: Network, tmp_path: Path) -> None:
    source = local_path(tmp_path, CONTENT)
    network.mode = "down"
    for call in (
        lambda: troubled.put(source, JOB, "x.csv", SHA256),
        lambda: troubled.open(JOB, "x.csv", SHA256),
        lambda: troubled.sizes(JOB),
        lambda: troubled.write(JOB, "y.csv", b""),
        lambda: troubled.clear(JOB),
    ):
        with pytest.raises(StoreAway, match="does not answer"):
            call()
    assert (source.read_bytes(), troubled.fault()) == (CONTENT, "away")
    network.mode = "fine"
    troubled.put(source, JOB, "x.csv", SHA256)
    assert (read_bounded(troubled, JOB, "x.csv", SHA256, 10**6), troubled.fault()) == (CONTENT, "")


def test_a_store_that_lies_is_not_believed(troubled: S3Files, network: Network, tmp_path: Path) -> None:
    source = local_path(tmp_path, CONTENT)
    network.mode = "lying"
    with pytest.raises(StoreAway, match="other bytes than were stored"):
        troubled.put(source, JOB, "x.csv", SHA256)
    assert (source.read_bytes(), troubled.fault()) == (CONTENT, "gives other bytes than were stored")
    network.mode = "fine"
    troubled.put(source, JOB, "x.csv", SHA256)
    network.mode = "lying"
    with pytest.raises(StoreAway, match="other bytes"):
        troubled.open(JOB, "x.csv", SHA256)
    assert [*(tmp_path / "others").glob("*/*")] == []


@pytest.mark.costly
def test_a_slow_store_is_given_up(troubled: S3Files, network: Network, tmp_path: Path) -> None:
    source = local_path(tmp_path, CONTENT)
    network.mode = "slow"
    with pytest.raises(StoreAway, match="does not answer"):
        troubled.put(source, JOB, "x.csv", SHA256)
    assert (source.exists(), troubled.fault()) == (True, "too slow")


def test_readers_of_a_store_that_failed_do_not_wait_again(
    troubled: S3Files, network: Network, monkeypatch: Any
) -> None:
    monkeypatch.setattr(s3_files, "REST_SECONDS", 600.0)
    network.mode = "down"
    with pytest.raises(StoreAway):
        troubled.sizes(JOB)
    asked = len(network.calls)
    with pytest.raises(StoreAway):
        troubled.open(JOB, "x.csv", SHA256)
    assert len(network.calls) == asked


def test_no_key_is_told(troubled: S3Files, place: S3Place, network: Network, caplog: Any) -> None:
    network.mode = "down"
    with pytest.raises(StoreAway) as told:
        troubled.sizes(JOB)
    troubled.fault()
    assert "the object store" in caplog.text
    for text in (caplog.text, str(told.value), repr(place)):
        assert place.secret_access_key not in text
        assert place.access_key_id not in text


def test_a_bucket_that_is_missing_is_a_fault(place: S3Place, tmp_path: Path) -> None:
    files = S3Files(replace(place, bucket="no-such-bucket"), tmp_path, 10)
    assert files.fault() == "no such bucket"
    with pytest.raises(StoreAway):
        files.write(JOB, "x.csv", b"")


def test_staged_files_of_killed_services_go(files: S3Files, tmp_path: Path, monkeypatch: Any) -> None:
    files.stage(local_path(tmp_path, CONTENT))
    files.tidy()
    assert len([*files.sizes(s3_files.STAGING)]) == 1
    monkeypatch.setattr(s3_files, "KEPT_SECONDS", -60.0)
    files.tidy()
    assert [*files.sizes(s3_files.STAGING)] == []


def test_a_presigned_put_and_get_need_no_key(files: S3Files) -> None:
    put = files.presign("PUT", JOB, "x.csv", SHA256, len(CONTENT))
    assert put is not None
    assert httpx.put(put.url, content=CONTENT, headers=put.headers, timeout=60).status_code == 200
    assert files.holds(JOB, "x.csv", SHA256, len(CONTENT))
    got = files.presign("GET", JOB, "x.csv", SHA256, 0)
    assert got is not None
    assert httpx.get(got.url, headers=got.headers, timeout=60).content == CONTENT
    assert files.presign("PUT", JOB, "x.csv", SHA256, 5 * 2**30 + 1) is None


def test_a_presigned_put_replaces_no_file(files: S3Files) -> None:
    """The address outlives its claim, and the file may be its successor's by then."""
    put = files.presign("PUT", JOB, "x.csv", SHA256, len(CONTENT))
    files.write(JOB, "x.csv", b"its successor's")
    assert put is not None
    assert httpx.put(put.url, content=CONTENT, headers=put.headers, timeout=60).status_code == 412
    assert read_bounded(files, JOB, "x.csv", "", 100) == b"its successor's"
