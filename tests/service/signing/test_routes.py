"""Signatures over HTTP: of complete results only, made once, never taken from what an evaluator wrote."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from assay.service.settings import Settings
from assay.service.signing import routes as signatures
from assay.service.signing.keys import keyring, public_keys
from assay.service.signing.verify import Signed, file_problem, opened, result_problems
from assay.service.signing.wire import KeySet
from assay.service.store.store import Store

JOBS = "/api/v1/jobs"
KEYS = "/.well-known/assay-keys"
CSV = b"id,correct\nx0,1\n"


@pytest.fixture
def job_id(api: httpx.Client, worker: Any, settings: Settings, app_store: Store, evaluate_body: Any) -> str:
    return finished(api, worker, settings, app_store, evaluate_body)


def finished(api: httpx.Client, worker: Any, settings: Settings, store: Store, body: Any) -> str:
    """A job with results and a file."""
    job_id = str(api.post(JOBS, json=body()).json()["id"])
    worker.run(job_id, [1, 1, 1, 0], [1, 0, 0, 0])
    file = settings.artifacts / job_id / "outcomes-000-clean.csv"
    file.parent.mkdir(parents=True)
    file.write_bytes(CSV)
    store.artifacts.add(job_id, file.name, str(file), len(CSV), hashlib.sha256(CSV).hexdigest(), "text/csv")
    return job_id


def signed_by(api: httpx.Client, raw: bytes) -> Signed:
    return opened(raw, public_keys(KeySet.model_validate(api.get(KEYS).json())))


def test_complete_results_are_signed_with_their_files(
    api: httpx.Client, job_id: str, tmp_path: Path, settings: Settings
) -> None:
    answer = api.get(f"{JOBS}/{job_id}/results")
    assert answer.json()["signature"] == f"{JOBS}/{job_id}/signature"
    raw = api.get(answer.json()["signature"])
    assert (raw.status_code, raw.headers["content-type"]) == (200, "application/json")
    signed = signed_by(api, raw.content)
    assert signed.job == job_id
    assert result_problems(signed, answer.content) == []
    assert list(signed.files) == ["outcomes-000-clean.csv"]
    assert file_problem(signed, settings.artifacts / job_id / "outcomes-000-clean.csv") is None
    assert signed.results["provenance"]["seed"] == 0


def test_it_is_an_artifact_and_stays_the_same(api: httpx.Client, job_id: str) -> None:
    first = api.get(f"{JOBS}/{job_id}/signature").content
    assert api.get(f"{JOBS}/{job_id}/signature").content == first
    listed = {item["name"]: item for item in api.get(f"{JOBS}/{job_id}/artifacts").json()["items"]}
    assert listed["signature.json"]["sha256"] == hashlib.sha256(first).hexdigest()
    assert api.get(listed["signature.json"]["href"]).content == first


@pytest.mark.parametrize("seconds", [0.0, 0.1])
def test_many_at_once_get_the_same_one(
    api: httpx.Client, job_id: str, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def slow_link(*names: Any) -> None:
        link(*names)
        time.sleep(seconds)  # in which the file has two names, and is read by no call

    monkeypatch.setattr(os, "link", slow_link)
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: api.get(f"{JOBS}/{job_id}/signature").content, range(16)))
    assert len(found) == 1
    assert api.get(f"{JOBS}/{job_id}/artifacts/signature.json").content in found


def test_incomplete_results_are_not_signed(api: httpx.Client, worker: Any, evaluate_body: Any) -> None:
    job_id = api.post(JOBS, json=evaluate_body()).json()["id"]

    def refused(state: str) -> None:
        answer = api.get(f"{JOBS}/{job_id}/signature")
        assert (answer.status_code, answer.json()["error"]["type"]) == (409, "invalid_state")
        assert f"is {state}; only complete results are signed" in answer.json()["error"]["message"]

    refused("queued")
    worker.plan(job_id)
    worker.evaluate(job_id, [1, 1, 1, 0])
    refused("running")
    assert api.get(f"{JOBS}/{job_id}/results").json()["signature"] is None
    worker.fail(job_id)
    refused("failed")


def forged(settings: Settings, job_id: str, other: bytes) -> dict[str, Callable[[Path], object]]:
    """What an evaluator could leave in its job's folder under the signature's name."""
    return {
        "nonsense": lambda path: path.write_text("{}"),
        "of another job": lambda path: path.write_bytes(other),
        "link": lambda path: path.symlink_to(settings.state / "assay.sqlite"),
        "link to nowhere": lambda path: path.symlink_to(settings.state / "new"),
        "pipe": os.mkfifo,
        "huge": lambda path: os.truncate(os.open(path, os.O_CREAT | os.O_WRONLY), 1 << 40),
    }


@pytest.mark.costly
@pytest.mark.parametrize("kind", ["nonsense", "of another job", "link", "link to nowhere", "pipe", "huge"])
def test_a_file_that_an_evaluator_left_is_not_taken_for_ours(
    api: httpx.Client,
    job_id: str,
    worker: Any,
    settings: Settings,
    app_store: Store,
    evaluate_body: Any,
    kind: str,
) -> None:
    another = finished(api, worker, settings, app_store, evaluate_body)
    others = api.get(f"{JOBS}/{another}/signature").content
    path = settings.artifacts / job_id / "signature.json"
    forged(settings, job_id, others)[kind](path)
    app_store.artifacts.add(job_id, path.name, str(path), 2, "0" * 64, "application/json")
    raw = api.get(f"{JOBS}/{job_id}/signature").content
    assert signed_by(api, raw).job == job_id
    assert path.read_bytes() == raw
    assert not path.is_symlink()
    assert not (settings.state / "new").exists()


def test_a_file_longer_than_any_signature_is_not_read(
    api: httpx.Client, job_id: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut off at the limit it would be a true one."""
    path = settings.artifacts / job_id / "signature.json"
    first = api.get(f"{JOBS}/{job_id}/signature").content
    monkeypatch.setattr(signatures, "MAX_SIGNATURE_BYTES", len(first) + 10)
    path.write_bytes(first + b" " * 10)
    assert api.get(f"{JOBS}/{job_id}/signature").content == path.read_bytes() == first + b" " * 10
    path.write_bytes(first + b" " * 11)
    assert api.get(f"{JOBS}/{job_id}/signature").content == path.read_bytes()
    assert path.stat().st_size < len(first) + 10


def test_a_link_to_a_true_signature_is_replaced_by_a_file(
    api: httpx.Client, job_id: str, settings: Settings, tmp_path: Path
) -> None:
    """What it leads to could be changed while it is read."""
    path = settings.artifacts / job_id / "signature.json"
    (tmp_path / "copy").write_bytes(api.get(f"{JOBS}/{job_id}/signature").content)
    path.unlink()
    path.symlink_to(tmp_path / "copy")
    raw = api.get(f"{JOBS}/{job_id}/signature").content
    assert signed_by(api, raw).job == job_id
    assert not path.is_symlink()
    assert path.read_bytes() == raw


def test_a_changed_signature_is_made_again(api: httpx.Client, job_id: str, settings: Settings) -> None:
    first = api.get(f"{JOBS}/{job_id}/signature").content
    path = settings.artifacts / job_id / "signature.json"
    path.write_bytes(first.replace(b'"sig": "', b'"sig": "A'))
    assert signed_by(api, api.get(f"{JOBS}/{job_id}/signature").content).job == job_id


def test_after_rotation_the_old_signature_still_counts(
    api: httpx.Client, job_id: str, worker: Any, settings: Settings, app_store: Store, evaluate_body: Any
) -> None:
    first = api.get(f"{JOBS}/{job_id}/signature").content
    folder = settings.state / "signing"
    (old,) = keyring(settings).public().keys
    os.system(f"openssl pkey -in {folder}/key.pem -pubout -out {folder}/retired/1.pem")
    (folder / "key.pem").unlink()
    assert api.get(f"{JOBS}/{job_id}/signature").content == first
    assert [entry["status"] for entry in api.get(KEYS).json()["keys"]] == ["signing", "verify_only"]
    assert signed_by(api, first).key_id == old.kid
    another = finished(api, worker, settings, app_store, evaluate_body)
    assert signed_by(api, api.get(f"{JOBS}/{another}/signature").content).key_id != old.kid


def test_without_a_usable_key_the_service_says_so_and_not_more(
    api: httpx.Client, job_id: str, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    keyring(settings).private()
    (settings.state / "signing" / "key.pem").chmod(0o644)
    for path in (KEYS, f"{JOBS}/{job_id}/signature"):
        answer = api.get(path)
        assert (answer.status_code, answer.json()["error"]["type"]) == (503, "unavailable")
        assert "key.pem" not in answer.text
    assert "has mode 0644" in caplog.text


def test_where_nothing_can_be_written_it_is_signed_all_the_same(
    api: httpx.Client, job_id: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyring(settings).private()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "link", full)
    assert signed_by(api, api.get(f"{JOBS}/{job_id}/signature").content).job == job_id
    assert [item["name"] for item in api.get(f"{JOBS}/{job_id}/artifacts").json()["items"]] == [
        "outcomes-000-clean.csv"
    ]
    assert [path.name for path in (settings.artifacts / job_id).iterdir()] == ["outcomes-000-clean.csv"]


def test_expired_files_stay_signed_and_away(
    api: httpx.Client, job_id: str, settings: Settings, app_store: Store
) -> None:
    app_store.artifacts.expire([job_id], -1)
    (settings.artifacts / job_id / "outcomes-000-clean.csv").unlink()
    (settings.artifacts / job_id).rmdir()
    signed = signed_by(api, api.get(f"{JOBS}/{job_id}/signature").content)
    assert list(signed.files) == ["outcomes-000-clean.csv"]
    assert not (settings.artifacts / job_id).exists()


def test_the_keys_are_a_json_web_key_set(api: httpx.Client) -> None:
    (entry,) = api.get(KEYS).json()["keys"]
    assert {name: entry[name] for name in ("kty", "crv", "use", "alg", "status")} == {
        "kty": "OKP", "crv": "Ed25519", "use": "sig", "alg": "EdDSA", "status": "signing",
    }  # fmt: skip
    assert (len(entry["x"]), len(entry["kid"])) == (43, 43)
    assert set(json.dumps(entry)) <= set('{}":, ') | set(
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
    )


def test_a_stranger_gets_no_signature(
    settings: Settings, app_store: Store, worker: Any, evaluate_body: Any, serve: Any
) -> None:
    with serve(settings.model_copy(update={"require_keys": True}), app_store) as api:
        alice, bob = (
            {"Authorization": f"Bearer {app_store.keys.create(name, ['submit'], tenant=name)[1]}"}
            for name in ("alice", "bob")
        )
        job_id = api.post(JOBS, json=evaluate_body(), headers=alice).json()["id"]
        worker.run(job_id, [1, 1, 1, 0], [1, 0, 0, 0])
        path = f"{JOBS}/{job_id}/signature"
        assert api.get(path).status_code == 401
        foreign = api.get(path, headers=bob)
        assert foreign.status_code == 404
        unknown = api.get(path.replace(job_id, "0" * 26), headers=bob)
        assert foreign.text.replace(job_id, "0" * 26) == unknown.text
        raw = api.get(path, headers=alice)
        assert signed_by(api, raw.content).job == job_id, "the keys need no API key"
