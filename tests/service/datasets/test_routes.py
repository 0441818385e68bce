"""Published data sets over the gateway: a tenant's own, file by file, in parts, and nothing beside them."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256
from typing import Any

import httpx
import pytest

from assay.service.contract.fleet.worker_records import Gauges
from assay.service.contract.weights.pulled import PulledRecord
from assay.service.datasets import routes
from assay.service.files.blobs import BlobFolder
from assay.service.files.data_store import DataStore
from assay.service.settings import Settings
from assay.service.store.store import Store
from tests.service.datasets.conftest import put

PATH = "/api/v1/worker/data"
LARGE = bytes(range(256)) * 8192  # 2 MiB
FILES = {"a.png": b"one", "b.png": b"two", "large.bin": LARGE}


def key(store: Store, tenant: str = "alice", scope: Any = "worker") -> dict[str, str]:
    return {"Authorization": f"Bearer {store.keys.create('k', [scope], tenant=tenant)[1]}"}


def sent(http: httpx.Client, call: str, given: Any, header: Any) -> httpx.Response:
    if call in ("blobs", "addresses"):
        return http.post(f"{PATH}/{call}", json=given, headers=header)
    return http.get(f"{PATH}/{call}", params=given, headers=header)


def hash_of(content: bytes) -> str:
    return sha256(content).hexdigest()


def test_a_node_fetches_a_set(http: httpx.Client, store: Store, data_store: DataStore) -> None:
    one, header = put(data_store, "birds", FILES, ["alice"]), key(store)

    def call(name: str, /, **given: Any) -> httpx.Response:
        return sent(http, name, given, header)

    (listed,) = call("sets").json()["sets"]
    assert (listed["name"], listed["sha256"], listed["tenants"]) == ("birds", one.sha256, None)
    assert hash_of(call("tree", name="birds").content) == one.sha256
    assert call("blob", name="birds", sha256=hash_of(LARGE)).content == LARGE
    small = [hash_of(b"two"), hash_of(b"one"), hash_of(b"two")]
    assert call("blobs", name="birds", sha256=small).content == b"twoonetwo"
    assert call("addresses", name="birds", sha256=small).json() == {"urls": None}
    assert [one["sha256"] for one in call("sets", name="birds").json()["sets"]] == [one.sha256]


@pytest.mark.parametrize(
    ("given", "status", "content"),
    [
        ("bytes=2097150-", 206, LARGE[-2:]),
        ("bytes=5-6", 206, LARGE[5:7]),
        ("bytes=99999999-", 200, LARGE),
        ("bytes=x", 200, LARGE),
    ],
)
def test_a_part_of_a_file(
    http: httpx.Client, store: Store, data_store: DataStore, given: str, status: int, content: bytes
) -> None:
    put(data_store, "birds", FILES)
    body, header = {"name": "birds", "sha256": hash_of(LARGE)}, {**key(store), "Range": given}
    answer = sent(http, "blob", body, header)
    assert (answer.status_code, answer.content) == (status, content)


def test_a_foreign_tenant_sees_neither_sets_nor_contents(
    http: httpx.Client, store: Store, data_store: DataStore
) -> None:
    put(data_store, "secret", FILES, ["alice"])
    put(data_store, "public", {"c.png": b"three"})
    header = key(store, "mallory")
    assert [one["name"] for one in sent(http, "sets", {}, header).json()["sets"]] == ["public"]
    secret = hash_of(b"one")
    for call, body in (
        ("tree", {"name": "secret"}),
        ("blob", {"name": "secret", "sha256": secret}),
        ("blobs", {"name": "secret", "sha256": [secret]}),
        ("blob", {"name": "public", "sha256": secret}),
        ("blobs", {"name": "public", "sha256": [hash_of(b"three"), secret]}),
    ):
        answer = sent(http, call, body, header)
        assert answer.status_code == 404, call
        assert "alice" not in answer.text
    missing = sent(http, "tree", {"name": "nothing"}, header).json()["error"]["message"]
    foreign = sent(http, "tree", {"name": "secret"}, header).json()["error"]["message"]
    assert missing.replace("nothing", "secret") == foreign


@pytest.mark.parametrize(
    ("call", "body", "status"),
    [
        ("sets", {"more": 1}, 422),
        ("sets", {"name": "bird"}, 404),
        ("addresses", {"name": "birds", "sha256": []}, 422),
        ("tree", {"name": ""}, 422),
        ("tree", {"name": "../sets/birds"}, 404),
        ("blob", {"name": "birds", "sha256": "../../../etc/passwd"}, 422),
        ("blobs", {"name": "birds", "sha256": []}, 422),
        ("blobs", {"name": "birds", "sha256": ["a" * 64] * 257}, 422),
        ("blobs", {"name": "birds", "sha256": [hash_of(LARGE)]}, 422),
    ],
)
def test_a_wrong_call_is_refused(
    http: httpx.Client, store: Store, data_store: DataStore, call: str, body: Any, status: int
) -> None:
    put(data_store, "birds", FILES)
    assert sent(http, call, body, key(store)).status_code == status


@pytest.mark.parametrize("call", ["sets", "tree", "blob", "blobs", "addresses"])
def test_only_keys_of_workers_open_it(http: httpx.Client, store: Store, call: str) -> None:
    assert sent(http, call, {}, {}).status_code == 401
    assert sent(http, call, {}, key(store, scope="admin")).status_code == 403


def test_contents_elsewhere_are_named(
    http: httpx.Client, store: Store, data_store: DataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Elsewhere(BlobFolder):
        def address(self, sha256: str) -> str | None:
            return f"https://objects.example/{sha256}?signature=x"

    elsewhere = DataStore(data_store.root, Elsewhere(data_store.root / "blobs"))
    monkeypatch.setattr(Settings, "published", elsewhere)
    put(data_store, "birds", FILES)
    body = {"name": "birds", "sha256": hash_of(LARGE)}
    answer = sent(http, "blob", body, key(store))
    assert answer.status_code == 303
    assert answer.headers["location"] == f"https://objects.example/{hash_of(LARGE)}?signature=x"
    answer = sent(http, "blob", {**body, "sha256": "0" * 64}, key(store))
    assert answer.status_code == 404
    small = {"name": "birds", "sha256": [hash_of(b"two"), hash_of(b"one")]}
    told = sent(http, "addresses", small, key(store)).json()
    assert told == {"urls": [f"https://objects.example/{one}?signature=x" for one in small["sha256"]]}
    foreign = sent(http, "addresses", {**small, "sha256": ["0" * 64]}, key(store))
    assert foreign.status_code == 404


def test_a_service_without_a_store_says_so(
    http: httpx.Client, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Settings, "published", None)
    answer = sent(http, "sets", {}, key(store))
    assert (answer.status_code, answer.json()["error"]["message"]) == (404, routes.NO_STORE)


def test_published_weights_count_as_pulled_for_those_who_may_have_them(
    http: httpx.Client, store: Store, data_store: DataStore
) -> None:
    record: PulledRecord = {"sha256": "a" * 64, "aliases": ["timm:resnet50"], "facts": {"classes": 10}}
    one = replace(put(data_store, "timm:resnet50.a1_in1k", FILES, ["alice"]), pulled=record)
    data_store.record(one.name).write_text(json.dumps(one.record))
    store.workers.beat("w", "host", ["cpu"], 1, Gauges(weights={}))
    job = {
        "kind": "evaluate",
        "model": {"name": "timm", "params": {"architecture": "resnet50"}, "weights": {"pulled": True}},
        "data": {"name": "digits"},
        "evaluations": [{"name": "clean"}],
    }
    answers = {
        tenant: http.post(
            "/api/v1/jobs", params={"dry_run": "true"}, json=job, headers=key(store, tenant, "submit")
        )
        for tenant in ("alice", "bob")
    }
    assert answers["alice"].status_code == 200, answers["alice"].text
    assert answers["bob"].json()["error"]["type"] == "weights_unavailable"
