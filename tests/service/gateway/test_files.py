"""Files over the gateway: only those of the claim's job, with their hash, and bounded by name."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import httpx
import pytest

from assay.service.app import create_app
from assay.service.gateway import files
from assay.service.settings import Settings
from assay.service.store.store import Store
from tests.service.conftest import running
from tests.service.gateway.test_routes import PATH, PLAN, claimed, finishing, key
from tests.support.jobs import add, evaluate_spec, outcome, train_spec
from tests.support.object_stores import new_bucket, settings_of

WEIGHTS = "weights.safetensors"


def sent(client: httpx.Client, held: Any, header: Any, name: str, content: bytes, sha: str = "") -> Any:
    params = {"name": name, "sha256": sha or hashlib.sha256(content).hexdigest()}
    told = {**header, "Assay-Claim": held["token"]}
    return client.post(f"{PATH}/upload", params=params, content=content, headers=told)


def got(client: httpx.Client, held: Any, header: Any, job: str, name: str, known: Any = None) -> Any:
    body = {"token": held["token"], "job": job, "name": name, "known": known}
    return client.post(f"{PATH}/download", json=body, headers=header)


def step_name(step: int, content: bytes) -> str:
    return f"step-{step:09d}.{hashlib.sha256(content).hexdigest()[:16]}.pt"


def test_checkpoints_of_a_training_are_kept_and_fetched(http: Any, store: Store, tmp_path: Path) -> None:
    job_id, header = add(store, train_spec()), key(store)
    held = claimed(http, header)
    for step in (1, 2, 3):
        content = f"state {step}".encode()
        assert sent(http, held, header, step_name(step, content), content).status_code == 200
    kept = sorted(path.name for path in (tmp_path / "artifacts" / job_id).iterdir())
    assert kept == [step_name(2, b"state 2"), step_name(3, b"state 3")]
    found = http.post(f"{PATH}/sources", json={"token": held["token"]}, headers=header).json()
    assert found["steps"] == kept[::-1]
    assert got(http, held, header, job_id, kept[1]).content == b"state 3"


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("a.csv", 200),
        ("../a.csv", 409),
        (".upload-x", 409),
        ("outcomes-000-clean.csv", 409),
        ("plot-curve.svg", 409),
        ("signature.json", 409),
        ("results.json", 409),
        ("step-000000001.0123456789abcdef.pt", 409),
        ("x" * 201, 422),
    ],
)
def test_a_claim_leaves_only_its_own_files(http: Any, store: Store, name: str, status: int) -> None:
    add(store, train_spec())
    header = key(store)
    held = claimed(http, header)
    assert sent(http, held, header, name, b"x").status_code == status


def test_a_file_of_another_content_is_not_placed(http: Any, store: Store, tmp_path: Path) -> None:
    job_id, header = add(store, train_spec()), key(store)
    held = claimed(http, header)
    answer = sent(http, held, header, "a.csv", b"x", "0" * 64)
    assert answer.status_code == 422
    assert "was stated" in answer.json()["error"]["message"]
    assert not (tmp_path / "artifacts" / job_id / "a.csv").exists()
    assert not list((tmp_path / "artifacts").glob(".upload-*"))
    named = {"name": "a.csv", "path": "/x", "size": 1, "sha256": "0" * 64, "media_type": "x"}
    plan = {name: value for name, value in PLAN.items() if name != "shards"}
    extra = {**finishing(held)["extra"], "artifacts": [named], "plan": {**plan, "batch_size": 0}}
    body = finishing(held, n=1, columns={"id": ["a"]}, extra=extra)
    refused = http.post(f"{PATH}/finish", json=body, headers=header)
    assert "batch_size: 0" in refused.json()["error"]["message"]
    extra["plan"] = plan
    refused = http.post(f"{PATH}/finish", json=body, headers=header)
    assert "which was not sent" in refused.json()["error"]["message"]
    assert sent(http, held, header, "a.csv", b"x").status_code == 200
    refused = http.post(f"{PATH}/finish", json=body, headers=header)
    assert "another file" in refused.json()["error"]["message"]
    extra["artifacts"] = [{**named, "sha256": hashlib.sha256(b"x").hexdigest()}]
    assert http.post(f"{PATH}/finish", json={**body, "extra": extra}, headers=header).status_code == 200
    (row,) = store.results.outcomes(job_id, 0)
    assert row.extra["artifacts"][0]["path"] == f"{job_id}/a.csv"


def test_weights_come_from_the_jobs_sources_alone(http: Any, store: Store, tmp_path: Path) -> None:
    header, content = key(store), b"weights"
    sources = []
    for name in ("mine", "other"):
        sources.append(add(store, train_spec(name=name)))
        found = store.shards.claim("w", ["cpu"], lease_seconds=60)
        assert found is not None
        assert store.shards.finish(found, outcome(found)) is not None
        assert store.jobs.succeed(sources[-1], {})  # type: ignore[typeddict-item]
        folder = tmp_path / "artifacts" / sources[-1]
        folder.mkdir(parents=True)
        (folder / WEIGHTS).write_bytes(content)
        sha256 = hashlib.sha256(content).hexdigest()
        store.artifacts.add(sources[-1], WEIGHTS, str(folder / WEIGHTS), 7, sha256, "x")
    mine, other = sources
    add(store, evaluate_spec(weights_from=mine))
    held = claimed(http, header)
    answer = got(http, held, header, mine, WEIGHTS)
    assert (answer.content, answer.headers["etag"]) == (content, f'"{sha256}"')
    assert got(http, held, header, mine, WEIGHTS, sha256).status_code == 304
    for job, name in ((other, WEIGHTS), (held["job_id"], WEIGHTS), (mine, "a.csv"), ("..", WEIGHTS)):
        refused = got(http, held, header, job, name)
        assert refused.status_code == 409, (job, name)
        assert "the claim needs no file" in refused.json()["error"]["message"]


def test_files_of_a_job_are_bounded_in_sum(store: Store, tmp_path: Path) -> None:
    add(store, train_spec())
    app = create_app(Settings(state=tmp_path, require_keys=True, max_job_files_bytes=10), store=store)
    with running(app) as transport, httpx.Client(transport=transport, base_url="http://127.0.0.1") as http:
        header = key(store)
        held = claimed(http, header)
        assert sent(http, held, header, "a.csv", b"x" * 6).status_code == 200
        refused = sent(http, held, header, "b.csv", b"x" * 6)
        assert refused.status_code == 413
        assert "12 bytes; allowed: 10 (ASSAY_MAX_JOB_FILES_BYTES)" in refused.json()["error"]["message"]
        assert sent(http, held, header, "a.csv", b"y" * 8).status_code == 200, "it replaces its first"
        assert sent(http, held, header, "c.csv", b"xx").status_code == 200, "what was refused counts no more"
    folder = tmp_path / "artifacts" / held["job_id"]
    assert {path.name: path.stat().st_size for path in folder.iterdir()} == {"a.csv": 8, "c.csv": 2}


def presigned(
    client: httpx.Client, held: Any, header: Any, method: str, job: str, name: str, **facts: Any
) -> Any:
    body = {"token": held["token"], "method": method, "job": job, "name": name, **facts}
    return client.post(f"{PATH}/presign", json=body, headers=header)


def test_a_folder_has_no_presigned_address(http: Any, store: Store) -> None:
    job_id, header = add(store, train_spec()), key(store)
    facts = {"sha256": "0" * 64, "size": 1}
    answer = presigned(http, claimed(http, header), header, "PUT", job_id, "a.csv", **facts)
    assert answer.json() == {"url": None}


def test_a_file_of_a_claim_travels_between_node_and_store(
    store: Store, tmp_path: Path, s3_server: str
) -> None:
    """As a file that came through the service: by the same rules, and looked at before its outcome counts."""
    place = new_bucket(s3_server)
    chosen = Settings(state=tmp_path, require_keys=True, **settings_of(place))
    job_id, header, sha256 = add(store, train_spec()), key(store), hashlib.sha256(b"x").hexdigest()
    with running(create_app(chosen, store=store)) as transport:
        http = httpx.Client(transport=transport, base_url="http://127.0.0.1:8000")
        held = claimed(http, header)
        facts = {"sha256": sha256, "size": 1}
        for job, name, more in (
            (job_id, "outcomes-000-clean.csv", facts),
            (job_id, "../a.csv", facts),
            (job_id, "a.csv", {**facts, "size": 2**40}),
            (add(store, train_spec()), "a.csv", facts),
        ):
            refused = presigned(http, held, header, "PUT", job, name, **more)
            assert refused.status_code == 409, (job, name)
        assert presigned(http, held, header, "GET", job_id, "a.csv").status_code == 409
        unbound = presigned(http, held, header, "PUT", job_id, "a.csv", size=1)
        assert (unbound.status_code, "sha256: missing" in unbound.text) == (422, True)
        found = presigned(http, held, header, "PUT", job_id, "a.csv", **facts).json()
        assert place.secret_access_key not in str(found)
        named = {"name": "a.csv", "path": "/x", "size": 1, "sha256": sha256, "media_type": "x"}
        plan = {name: value for name, value in PLAN.items() if name != "shards"}
        extra = {**finishing(held)["extra"], "artifacts": [named], "plan": plan}
        body = finishing(held, n=1, columns={"id": ["a"]}, extra=extra)
        refused = http.post(f"{PATH}/finish", json=body, headers=header)
        assert "which was not sent" in refused.json()["error"]["message"]
        assert httpx.put(found["url"], content=b"x", headers=found["headers"], timeout=60).status_code == 200
        assert http.post(f"{PATH}/finish", json=body, headers=header).status_code == 200
    assert [*chosen.file_store.sizes(job_id)] == ["a.csv"]


def test_presigned_puts_count_before_they_arrive(
    store: Store, tmp_path: Path, s3_server: str, monkeypatch: Any
) -> None:
    place = settings_of(new_bucket(s3_server))
    chosen = Settings(state=tmp_path, require_keys=True, max_job_files_bytes=10, **place)
    job_id, header, facts = add(store, train_spec()), key(store), {"sha256": "0" * 64, "size": 6}
    with (
        running(create_app(chosen, store=store)) as transport,
        running(create_app(chosen, store=store)) as of_another_process,
    ):
        http = httpx.Client(transport=transport, base_url="http://127.0.0.1:8000")
        other = httpx.Client(transport=of_another_process, base_url="http://127.0.0.1:8000")
        held = claimed(http, header)
        for name, status in (("a.csv", 200), ("b.csv", 413), ("a.csv", 200)):
            assert presigned(http, held, header, "PUT", job_id, name, **facts).status_code == status
        assert presigned(other, held, header, "PUT", job_id, "b.csv", **facts).status_code == 413
        for one in (http, other):
            assert sent(one, held, header, "b.csv", b"x" * 6).status_code == 413
        monkeypatch.setattr(files, "PRESIGNED_SECONDS", -1.0)
        for name in ("a.csv", "b.csv"):
            assert presigned(http, held, header, "PUT", job_id, name, **facts).status_code == 200


def test_a_file_that_is_there_is_held(store: Store, tmp_path: Path, s3_server: str) -> None:
    """After its put, as when the answer to its outcome was lost; a file of another content is not."""
    chosen = Settings(state=tmp_path, require_keys=True, **settings_of(new_bucket(s3_server)))
    job_id, header, sha256 = add(store, train_spec()), key(store), hashlib.sha256(b"x").hexdigest()
    with running(create_app(chosen, store=store)) as transport:
        http = httpx.Client(transport=transport, base_url="http://127.0.0.1:8000")
        held, facts = claimed(http, header), {"sha256": sha256, "size": 1}
        found = presigned(http, held, header, "PUT", job_id, "a.csv", **facts).json()
        assert "held" not in found
        httpx.put(found["url"], content=b"x", headers=found["headers"], timeout=60)
        assert presigned(http, held, header, "PUT", job_id, "a.csv", **facts).json()["held"] is True
        other = hashlib.sha256(b"y").hexdigest()
        again = presigned(http, held, header, "PUT", job_id, "a.csv", sha256=other, size=1).json()
        assert (again["url"] is None, "held" in again) == (False, False)


def test_a_node_that_puts_other_bytes_is_found_out(store: Store, tmp_path: Path, s3_server: str) -> None:
    chosen = Settings(state=tmp_path, require_keys=True, **settings_of(new_bucket(s3_server)))
    job_id, header, sha256 = add(store, train_spec()), key(store), hashlib.sha256(b"x").hexdigest()
    with running(create_app(chosen, store=store)) as transport:
        http = httpx.Client(transport=transport, base_url="http://127.0.0.1:8000")
        held = claimed(http, header)
        found = presigned(http, held, header, "PUT", job_id, "a.csv", sha256=sha256, size=1).json()
        httpx.put(
            found["url"], content=b"y", timeout=60
        )  # moto asks for no signature: as a store that heeds no checksum
        named = {"name": "a.csv", "path": "/x", "size": 1, "sha256": sha256, "media_type": "x"}
        plan = {name: value for name, value in PLAN.items() if name != "shards"}
        extra = {**finishing(held)["extra"], "artifacts": [named], "plan": plan}
        body = finishing(held, n=1, columns={"id": ["a"]}, extra=extra)
        refused = http.post(f"{PATH}/finish", json=body, headers=header)
        assert "another file" in refused.json()["error"]["message"]
        assert store.results.outcomes(job_id, 0) == []
