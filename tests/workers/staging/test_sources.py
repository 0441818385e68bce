"""Both sources give the same sets and contents; over the gateway only what the key's tenant may read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from assay.service.contract.errors import NotFound
from assay.service.files.blob_bucket import BlobBucket
from assay.service.files.data_store import DataStore
from assay.service.settings import Settings
from assay.service.store.store import Store
from assay.workers.gateway.connection import Gateway
from assay.workers.staging.publishing import publish
from assay.workers.staging.scratch import Scratch, StagingFailed
from assay.workers.staging.sources import DataSource, GatewaySource, source_of
from assay.workers.staging.staging import stage
from tests.support.gateways import node_settings, serving, worker_key
from tests.support.object_stores import new_bucket, settings_of
from tests.support.workers import settings
from tests.workers.staging.conftest import FILES, Publish, contents, fill


@pytest.fixture(params=["folder", "gateway"])
def source(
    request: pytest.FixtureRequest, data_store: DataStore, store: Store, tmp_path: Path
) -> Iterator[DataSource]:
    if request.param == "folder":
        with source_of(settings(tmp_path / "state", data_store=data_store.root)) as found:
            yield found
        return
    with serving(store, tmp_path / "service", data_store=data_store.root) as server:
        chosen = node_settings(tmp_path / "node", server.url, worker_key(store, "alice"))
        with source_of(chosen) as found:
            yield found


def test_a_set_comes_whole_and_resumed(source: DataSource, published: Publish, tmp_path: Path) -> None:
    one = published(tenants=("alice",))
    assert [(found.name, found.sha256) for found in source.sets()] == [("birds", one.sha256)]
    scratch = Scratch(tmp_path / "scratch")
    scratch.root.mkdir()
    stage(scratch, source, "birds")
    assert contents(scratch.root / "birds") == FILES
    large = next(path for path in FILES if "large" in path)
    (hash_,) = {file.name for file in tmp_path.rglob("blobs/*/*") if file.stat().st_size == len(FILES[large])}
    with source.blob(one, hash_, 2_999_990) as chunks:
        assert b"".join(chunks) == b"x" * 10
    with pytest.raises(NotFound), source.blob(one, "0" * 64, 0) as chunks:
        list(chunks)


@pytest.mark.costly
def test_a_node_fetches_from_the_bucket_itself(
    store: Store, tmp_path: Path, s3_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small contents and large ones; the service sends none, and an earlier node gets small ones from it."""
    place = settings_of(new_bucket(s3_server))
    changes: dict[str, Any] = {"data_store": tmp_path / "store", "data_blobs": place.pop("files"), **place}
    fill(tmp_path / "origin" / "birds")
    settings_ = Settings(state=tmp_path / "service", **changes)
    assert settings_.published is not None
    one = publish(tmp_path / "origin", "birds", settings_.published, state=tmp_path / "state")
    assert not (tmp_path / "store" / "blobs").exists()
    with serving(store, tmp_path / "service", **changes) as server:
        chosen = node_settings(tmp_path / "node", server.url, worker_key(store))
        with source_of(chosen) as found, monkeypatch.context() as patched:
            patched.setattr(BlobBucket, "open", None)
            scratch = Scratch(tmp_path / "scratch")
            stage(scratch, found, "birds")
            assert contents(scratch.root / "birds") == FILES
        with source_of(chosen) as found:
            assert isinstance(found, GatewaySource)
            found._through = True
            hashes = [sha256(content).hexdigest() for content in (b"two", b"one")]
            with found.blobs(one, hashes) as chunks:
                assert b"".join(chunks) == b"twoone"


def test_a_foreign_set_is_unknown_to_a_node(
    data_store: DataStore, store: Store, published: Publish, tmp_path: Path
) -> None:
    published(tenants=("alice",))
    with serving(store, tmp_path / "service", data_store=data_store.root) as server:
        chosen = node_settings(tmp_path / "node", server.url, worker_key(store, "mallory"))
        with source_of(chosen) as found, pytest.raises(NotFound, match="no data set 'birds' is published"):
            found.find("birds")


def test_contents_elsewhere_are_fetched_without_the_key(
    published: Publish, data_store: DataStore, tmp_path: Path
) -> None:
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        if request.url.host == "gateway.example":
            return httpx.Response(303, headers={"Location": "https://objects.example/x?signature=y"})
        return httpx.Response(206, content=b"rest")

    one = published()
    chosen = settings(tmp_path, gateway="http://gateway.example", worker_key="assay_secret")
    gateway = Gateway(chosen, httpx.MockTransport(answer))
    with closing(gateway), GatewaySource(gateway).blob(one, "0" * 64, 7) as chunks:
        assert b"".join(chunks) == b"rest"
    first, second = asked
    assert [one.headers["range"] for one in asked] == ["bytes=7-"] * 2
    assert "authorization" in first.headers
    assert "authorization" not in second.headers


def test_a_service_that_begins_again_is_noticed(published: Publish, tmp_path: Path) -> None:
    one = published()
    chosen = settings(tmp_path, gateway="http://gateway.example")
    transport = httpx.MockTransport(lambda request: httpx.Response(200, content=b"all"))
    gateway, said = Gateway(chosen, transport), "from its beginning only"
    with closing(gateway), pytest.raises(OSError, match=said), GatewaySource(gateway).blob(one, "0", 7):
        pass


def test_records_that_are_none_are_left_out(tmp_path: Path) -> None:
    told = {
        "sets": [
            {"name": "../x"},
            1,
            {"name": "x", "sha256": "a" * 64, "files": 1, "bytes": 2, "published_at": ""},
        ]
    }
    chosen = settings(tmp_path, gateway="http://gateway.example")
    with closing(
        Gateway(chosen, httpx.MockTransport(lambda request: httpx.Response(200, json=told)))
    ) as gateway:
        assert [one.name for one in GatewaySource(gateway).sets()] == ["x"]


def test_a_set_is_found_by_name_at_services_of_any_version(published: Publish, tmp_path: Path) -> None:
    one, asked = published(), list[dict[str, str]]()
    facts = {"name": "birds", "sha256": one.sha256, "files": 4, "bytes": 9, "published_at": ""}

    def answer(request: httpx.Request, *, knows: bool) -> httpx.Response:
        asked.append(dict(request.url.params))
        if request.url.params and not knows:
            told = {"error": {"type": "invalid_spec", "message": "name: unknown", "details": []}}
            return httpx.Response(422, json=told)
        return httpx.Response(200, json={"sets": [facts]})

    chosen, by_name = settings(tmp_path, gateway="http://gateway.example"), {"name": "birds"}
    for knows, calls in ((True, [by_name]), (False, [by_name, {}])):
        transport = httpx.MockTransport(partial(answer, knows=knows))
        with closing(Gateway(chosen, transport)) as gateway:
            assert GatewaySource(gateway).find("birds").sha256 == one.sha256
            assert asked == calls
            with pytest.raises(NotFound, match="no data set 'bees' is published"):
                GatewaySource(gateway).find("bees")
        asked.clear()


def test_without_a_source_the_setting_is_named(tmp_path: Path) -> None:
    with pytest.raises(StagingFailed, match="ASSAY_GATEWAY"), source_of(settings(tmp_path)):
        pass
