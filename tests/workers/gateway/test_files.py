"""Files of a node: fetched once, checked by their hash, sent with an outcome, and forgotten."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from assay.service.store.rows import Claim, Finished, OutcomeRow
from assay.workers.gateway.connection import Gateway
from assay.workers.gateway.files import GatewayFiles
from assay.workers.gateway.ledger import GatewayLedger
from tests.support.workers import settings

JOB, SOURCE = "01jd3q0x5v8f7m2n9k4t6w1z0y", "01jd3q0x5v8f7m2n9k4t6w1z0x"
CONTENT = b"weights"
SHA256 = hashlib.sha256(CONTENT).hexdigest()
STEP = f"step-000000003.{SHA256[:16]}.pt"


class Service:
    """Answers downloads with a content and its stated hash, and keeps what is sent."""

    def __init__(self) -> None:
        self.content, self.stated, self.steps = CONTENT, SHA256, [STEP]
        self.downloads: list[Any] = []
        self.sent: dict[str, bytes] = {}
        self.place: dict[str, Any] = {"url": None}
        self.asked: list[Any] = []
        self.store: Any = None

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/sources"):
            return httpx.Response(200, json={"steps": self.steps})
        if request.url.path.endswith("/presign"):
            self.asked.append(json.loads(request.read()))
            return httpx.Response(200, json=self.place)
        if request.url.host == "store.example":
            assert "authorization" not in request.headers
            return self.store(request)
        if request.url.path.endswith("/upload"):
            assert request.headers["assay-claim"] == "token"
            self.sent[request.url.params["name"]] = request.read()
            return httpx.Response(200, json=None)
        self.downloads.append(request.read())
        if self.stated and f'"known": "{self.stated}"'.replace(" ", "") in request.read().decode():
            return httpx.Response(304)
        return httpx.Response(200, content=self.content, headers={"ETag": f'"{self.stated}"'})


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def files(service: Service, tmp_path: Path) -> Iterator[GatewayFiles]:
    chosen = settings(tmp_path, gateway="http://gateway.example")
    gateway = Gateway(chosen, httpx.MockTransport(service))
    yield GatewayFiles(gateway, chosen)
    gateway.close()


def held(kind: Any = "train") -> Claim:
    spec: Any = {}
    return Claim("s", JOB, kind, 1, 1, "w", spec, None, 0, 0, 0, 5, 0, 0, token="token")


def test_weights_are_fetched_once_and_again_when_they_are_others(
    files: GatewayFiles, service: Service
) -> None:
    path = files.weights(held(), SOURCE)
    assert path.read_bytes() == CONTENT
    assert files.weights(held(), SOURCE) == path
    assert len(service.downloads) == 2, "the second is answered without a body"
    path.write_bytes(b"of an earlier attempt")
    files.weights(held(), SOURCE)
    assert path.read_bytes() == CONTENT
    assert files.weights(held(), "checkpoint-none").name == "weights.safetensors"
    assert len(service.downloads) == 3, "a missing checkpoint has no job"


def test_a_file_of_another_content_is_refused(files: GatewayFiles, service: Service, tmp_path: Path) -> None:
    service.content = b"cut"
    with pytest.raises(OSError, match="another content"):
        files.weights(held(), SOURCE)
    assert list((tmp_path / "artifacts" / SOURCE).iterdir()) == []
    with pytest.raises(OSError, match="another content"):
        files.resume(held())


def test_a_training_goes_on_elsewhere(files: GatewayFiles, service: Service, tmp_path: Path) -> None:
    service.stated = ""
    files.resume(held())
    folder = tmp_path / "artifacts" / JOB
    assert [path.name for path in folder.iterdir()] == [STEP]
    files.resume(held())
    assert len(service.downloads) == 1
    files.keep(held(), 3)
    assert service.sent == {STEP: CONTENT}


def test_an_outcomes_files_are_sent_and_forgotten(
    files: GatewayFiles, service: Service, tmp_path: Path
) -> None:
    folder = tmp_path / "artifacts" / JOB
    folder.mkdir(parents=True)
    extra: Any = {"artifacts": [], "gallery": {"name": "g.json", "sha256": "1"}}
    for name in ("weights.safetensors", "log.jsonl"):
        extra["artifacts"].append({"name": name, "sha256": "0"})
    for name in ("weights.safetensors", "log.jsonl", "g.json", STEP, "kept.txt"):
        (folder / name).write_text(name)
    files.send(held(), extra)
    assert sorted(service.sent) == ["g.json", "log.jsonl", "weights.safetensors"]
    files.forget(held(), extra)
    assert sorted(path.name for path in folder.iterdir()) == ["kept.txt", "weights.safetensors"]


def test_of_a_shard_that_is_over_the_outcome_says_what_became_of_it(service: Service, tmp_path: Path) -> None:
    """The answer of an earlier `/finish` was lost: files are taken no longer, and the outcome is as told."""

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/presign"):
            return httpx.Response(200, json={"url": None})
        if request.url.path.endswith("/upload"):
            error = {"type": "invalid_state", "message": "the claim stands no longer", "details": []}
            return httpx.Response(409, json={"error": error})
        return httpx.Response(200, json={"finished": {"evaluation_done": True, "job_done": False}})

    chosen = settings(tmp_path, gateway="http://gateway.example")
    gateway = Gateway(chosen, httpx.MockTransport(answer))
    ledger = GatewayLedger(gateway, GatewayFiles(gateway, chosen))
    path = chosen.folder(JOB) / "adversarial-000.safetensors"
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT)
    extra: Any = {"artifacts": [{"name": path.name, "sha256": SHA256}]}
    row = OutcomeRow(0, 0, 1, {"id": ["a"]}, 1.0, 1, 1, extra)
    assert ledger.finish(held("evaluate"), row) == Finished(evaluation_done=True, job_done=False)
    gateway.close()


STORE = {"url": "https://store.example/x?signed", "headers": {"x-amz-checksum-sha256": "c"}}


def outcome_files(tmp_path: Path) -> Any:
    path = tmp_path / "artifacts" / JOB / "log.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT)
    return {"artifacts": [{"name": path.name, "sha256": SHA256}]}


def test_files_go_to_the_store_and_come_from_it(
    files: GatewayFiles, service: Service, tmp_path: Path
) -> None:
    put: list[bytes] = []

    def store(request: httpx.Request) -> httpx.Response:
        assert request.headers["x-amz-checksum-sha256"] == "c"
        if request.method == "PUT":
            assert request.headers["content-length"] == str(len(CONTENT))
            put.append(request.read())
            return httpx.Response(200)
        return httpx.Response(200, content=CONTENT)

    service.place, service.store = {**STORE, "sha256": SHA256}, store
    files.send(held(), outcome_files(tmp_path))
    assert (put, service.sent) == ([CONTENT], {})
    assert service.asked[0] == {
        "token": "token", "method": "PUT", "job": JOB, "name": "log.jsonl", "sha256": SHA256, "size": 7
    }  # fmt: skip
    for _ in range(2):
        assert files.weights(held(), SOURCE).read_bytes() == CONTENT
    assert service.downloads == []


def test_a_file_that_the_store_holds_is_not_sent_again(
    files: GatewayFiles, service: Service, tmp_path: Path
) -> None:
    service.place = {**STORE, "sha256": SHA256, "held": True}
    files.send(held(), outcome_files(tmp_path))
    assert service.sent == {}


@pytest.mark.parametrize("fault", ["away", "refuses", "lies"])
def test_files_go_through_the_gateway_where_the_store_fails(
    files: GatewayFiles, service: Service, tmp_path: Path, fault: str
) -> None:
    def store(request: httpx.Request) -> httpx.Response:
        if fault == "away":
            raise httpx.ConnectError("no way there")
        if fault == "refuses" or request.method == "PUT":
            return httpx.Response(403)
        return httpx.Response(200, content=b"other bytes")

    service.place, service.store = {**STORE, "sha256": SHA256}, store
    files.send(held(), outcome_files(tmp_path))
    assert service.sent == {"log.jsonl": CONTENT}
    assert files.weights(held(), SOURCE).read_bytes() == CONTENT
    assert len(service.downloads) == 1


def test_a_gateway_without_an_object_store_is_asked_once(
    files: GatewayFiles, service: Service, tmp_path: Path
) -> None:
    files.send(held(), outcome_files(tmp_path))
    files.weights(held(), SOURCE)
    assert (len(service.asked), len(service.downloads)) == (1, 1)
