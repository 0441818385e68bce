"""Uploading weights over HTTP."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from assay.service.files import s3_files
from assay.service.files.s3_files import STAGING
from assay.service.settings import Settings
from assay.service.store.fleet.fair_queue import CHECKS
from assay.service.store.store import Store
from tests.support.object_stores import Network, new_bucket, settings_of
from tests.support.pages import page
from tests.support.tensors import tensor_file, with_header

PATH = "/api/v1/checkpoints"
FILE = tensor_file()
DIGEST = hashlib.sha256(FILE).hexdigest()
VERDICT = {"layout": "timm", "classes": 10, "channels": 1, "missing": [], "unexpected": [], "shapes": []}


def upload(api: httpx.Client, content: Any = FILE, **params: Any) -> httpx.Response:
    return api.post(PATH, params={"name": "ours", "model": "tiny_vit"} | params, content=content)


def check(store: Store, error: str | None = None, **verdict: Any) -> None:
    claim = store.shards.claim("worker", [CHECKS], lease_seconds=60)
    assert claim is not None
    assert store.checkpoints.checked(claim, VERDICT | verdict, error)


def files(settings: Settings) -> list[str]:
    return sorted(
        str(p.relative_to(settings.artifacts)) for p in settings.artifacts.rglob("*") if p.is_file()
    )


def test_an_upload_is_stored_and_then_checked(
    api: httpx.Client, app_store: Store, settings: Settings, bell: Any
) -> None:
    answer = upload(api)
    assert answer.status_code == 202, answer.text
    assert answer.headers["location"] == f"{PATH}/ours"
    body = answer.json()
    assert (body["state"], body["sha256"], body["size"]) == ("checking", DIGEST, len(FILE))
    assert body["model"] == {"name": "tiny_vit", "params": {"width": 32, "heads": 4}}
    job_id = app_store.checkpoints.get("ours", tenant=None).job_id
    assert bell.rung == [job_id]
    assert files(settings) == [f"{job_id}/weights.safetensors"]
    assert (settings.artifacts / job_id / "weights.safetensors").read_bytes() == FILE
    check(app_store)
    assert api.get(f"{PATH}/ours").json() == body | {
        "state": "ready",
        "layout": "timm",
        "classes": 10,
        "channels": 1,
    }
    assert api.get(PATH).json() == {"items": [api.get(f"{PATH}/ours").json()], "next_cursor": None}
    assert api.get("/api/v1/jobs").json()["items"] == []
    assert api.get(f"/api/v1/jobs/{job_id}").status_code == 404


def test_a_name_that_begins_the_name_of_an_upload_is_near_to_it(api: httpx.Client) -> None:
    upload(api, name="example-253fa60041c3")
    assert api.get(f"{PATH}/example").json()["error"]["details"][0]["nearest"] == "example-253fa60041c3"
    model = {"name": "tiny_vit", "weights": {"checkpoint": "example"}}
    body = {
        "kind": "evaluate",
        "model": model,
        "data": {"name": "digits"},
        "evaluations": [{"name": "clean"}],
    }
    (detail,) = api.post("/api/v1/jobs?dry_run=true", json=body).json()["error"]["details"]
    assert (detail["given"], detail["nearest"]) == ("example", "example-253fa60041c3")


def test_a_rejection_lists_every_fault(api: httpx.Client, app_store: Store) -> None:
    upload(api)
    shapes = [{"key": "head.weight", "given": [2, 3], "wanted": [2, 4]}]
    check(app_store, "it does not fit", missing=["norm.weight"], unexpected=["tail"], shapes=shapes)
    body = api.get(f"{PATH}/ours").json()
    assert (body["state"], body["error"]) == (
        "rejected",
        {"type": "bad_weights", "message": "it does not fit"},
    )
    assert body["faults"] == {
        "missing": ["norm.weight"],
        "unexpected": ["tail"],
        "shapes": shapes,
        "other": [],
        "unlisted": 0,
    }


def test_the_same_file_again_is_the_same_checkpoint(api: httpx.Client, settings: Settings) -> None:
    first = upload(api).json()
    again = upload(api)
    assert (again.status_code, again.json()) == (200, first)
    assert len(files(settings)) == 1


def test_another_file_under_the_same_name_is_refused(api: httpx.Client, settings: Settings) -> None:
    upload(api)
    for answer in (upload(api, tensor_file({"a": (1,)})), upload(api, model="other_vit")):
        assert answer.status_code == 409
        assert answer.json()["error"]["type"] == "invalid_state"
    assert len(files(settings)) == 1


BAD = {
    "truncated": (FILE[:-1], "cut off"),
    "lying": (
        with_header({"a": {"dtype": "F32", "shape": [9], "data_offsets": [0, 4]}}, 4),
        "takes 36 bytes",
    ),
    "large dimensions": (
        with_header({"a": {"dtype": "F32", "shape": [10**24] * 300, "data_offsets": [0, 4]}}, 4),
        "tensor 'a' has 300 dimensions, allowed: at most 16",
    ),
    "a large product": (
        with_header({"a": {"dtype": "F32", "shape": [10**18] * 16, "data_offsets": [0, 4]}}, 4),
        "bytes that the file has",
    ),
    "neither": (
        b"PK\x08\x08 not tensors at all",
        "neither a safetensors file nor an exported program (.pt2): it begins with the bytes 50 4b 08 08",
    ),
    "a pickle": (
        b"\x80\x02}q\x00(X\x06\x00",
        "the mark of a Python pickle (torch.save); `assay import-pickle`",
    ),
    "an ONNX model": (
        b"\x08\x08\x12\x07pytorch\x1a\x05",
        "the mark of an ONNX model; `assay import-onnx` converts it to a program",
    ),
    "a pointer": (b"version https://git-lfs.github.com/spec/v1\noid", "the text of a Git LFS pointer"),
    "short": (b"ab", "it begins with the bytes 61 62"),
    "no archive": (b"PK\x03\x04 not tensors at all", "no exported program"),
    "empty": (b"", "it is empty"),
}


@pytest.mark.costly
@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_refused_and_leave_nothing(api: httpx.Client, settings: Settings, case: str) -> None:
    content, reason = BAD[case]
    answer = upload(api, content)
    assert answer.status_code == 422
    assert reason in answer.json()["error"]["message"]
    assert files(settings) == []
    assert api.get(PATH).json()["items"] == []


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a b", "x" * 101, "a\0", "ä", "a\n"])
def test_names_are_names_and_no_paths(api: httpx.Client, settings: Settings, name: str) -> None:
    answer = upload(api, name=name)
    assert answer.status_code == 422
    assert answer.json()["error"]["details"][0]["loc"] == ["query", "name"]
    assert files(settings) == []


@pytest.mark.parametrize(
    ("model", "loc"),
    [
        ("tiny_vat", ["query", "model", "name"]),
        ('{"name": "tiny_vit", "params": {"widht": 3}}', ["query", "model", "params", "widht"]),
        ('{"name": "tiny_vit", "params": {"width": 33}}', ["query", "model", "params"]),
        ('{"name": 3}', ["query", "model", "name"]),
        ('{"name": "tiny_vit", "params": []}', ["query", "model", "params"]),
        ('{"name": ', ["query", "model"]),
        ('{"name": "\\ud800"}', ["query", "model"]),
    ],
)
def test_models_that_are_none_are_refused(api: httpx.Client, model: str, loc: list[str]) -> None:
    answer = upload(api, model=model)
    assert answer.status_code == 422
    assert answer.json()["error"]["details"][0]["loc"] == loc


def test_without_a_model_the_file_must_name_it(api: httpx.Client) -> None:
    answer = api.post(PATH, params={"name": "ours"}, content=FILE)
    assert answer.status_code == 422
    assert "does not name the model of its weights" in answer.json()["error"]["message"]
    inside = tensor_file(model={"name": "tiny_vit", "params": {"width": 16}, "weights": None})
    answer = api.post(PATH, params={"name": "ours"}, content=inside)
    assert answer.status_code == 202
    assert answer.json()["model"] == {"name": "tiny_vit", "params": {"width": 16, "heads": 4}}


@pytest.mark.parametrize("inside", ["no JSON: {", "{", "[]", '{"params": {}}', '{"name": "unknown"}'])
def test_a_model_inside_that_is_none_is_refused(api: httpx.Client, inside: str) -> None:
    answer = api.post(PATH, params={"name": "ours"}, content=tensor_file(model=inside))
    assert answer.status_code == 422
    assert answer.json()["error"]["details"][0]["loc"][:3] == ["body", "__metadata__", "model"]


def test_a_model_that_disagrees_with_the_file_is_refused(api: httpx.Client) -> None:
    inside = tensor_file(model={"name": "tiny_vit", "params": {"width": 16}})
    (detail,) = upload(api, inside, model="other_vit").json()["error"]["details"]
    assert (detail["given"], detail["allowed"]) == ("other_vit", ["tiny_vit"])
    given = json.dumps({"name": "tiny_vit", "params": {"width": 64}})
    (detail,) = upload(api, inside, model=given).json()["error"]["details"]
    assert (detail["loc"], detail["given"], detail["allowed"]) == (["model", "params", "width"], 64, [16])
    assert upload(api, inside, model="tiny_vit").status_code == 202, "what is left open is no disagreement"


def test_uploads_have_a_cap_of_their_own(
    app_store: Store, settings: Settings, serve: Callable[..., Any]
) -> None:
    def parts() -> Iterator[bytes]:
        yield from (FILE[:50], FILE[50:])

    large = tensor_file({"head.weight": (10_000,)})
    assert len(large) > settings.max_body_bytes
    with serve(settings.model_copy(update={"max_checkpoint_bytes": len(large)}), app_store) as api:
        assert upload(api, large).status_code == 202
        assert upload(api, large + b"!", name="other").status_code == 413
    with serve(settings.model_copy(update={"max_checkpoint_bytes": len(FILE) - 1}), app_store) as api:
        for content in (FILE, parts()):
            answer = upload(api, content, name="other")
            assert (answer.status_code, answer.json()["error"]["type"]) == (413, "too_large")
    assert len(files(settings)) == 1


def test_a_disk_that_takes_no_more_is_a_503(api: httpx.Client, settings: Settings, app_store: Store) -> None:
    settings.artifacts.parent.mkdir(exist_ok=True)
    settings.artifacts.write_text("in the way")
    answer = upload(api)
    assert (answer.status_code, answer.json()["error"]["type"]) == (503, "unavailable")
    assert app_store.checkpoints.page(tenant=None)[0] == []


def test_a_deleted_checkpoint_takes_its_file_along(
    api: httpx.Client, app_store: Store, settings: Settings, evaluate_body: Any
) -> None:
    upload(api)
    spec = evaluate_body(model={"name": "tiny_vit", "weights": {"checkpoint": "ours"}})
    job = api.post("/api/v1/jobs", json=spec).json()
    assert job["state"] == "waiting"
    refused = api.delete(f"{PATH}/ours")
    assert refused.status_code == 409
    assert job["id"] in refused.json()["error"]["message"]
    api.post(f"/api/v1/jobs/{job['id']}/cancel")
    assert api.delete(f"{PATH}/ours").status_code == 204
    assert files(settings) == []
    assert api.get(f"{PATH}/ours").status_code == api.delete(f"{PATH}/ours").status_code == 404
    assert app_store.checkpoints.page(tenant=None)[0] == []


def test_a_job_takes_model_and_hash_from_the_checkpoint(
    api: httpx.Client, app_store: Store, evaluate_body: Any
) -> None:
    upload(api, model=json.dumps({"name": "tiny_vit", "params": {"width": 16, "heads": 4}}))
    check(app_store)
    spec = evaluate_body(model={"name": "tiny_vit", "weights": {"checkpoint": "ours"}})
    job = api.post("/api/v1/jobs", json=spec).json()
    assert job["state"] == "queued"
    assert job["spec"]["model"] == {
        "name": "tiny_vit",
        "params": {"width": 16, "heads": 4},
        "weights": {"checkpoint": "ours", "sha256": DIGEST, "normalization": None, "positions": None},
    }
    assert api.post("/api/v1/jobs", json=job["spec"]).status_code == 201, "a job's spec may be sent again"


@pytest.mark.parametrize(
    ("weights", "told"),
    [
        ({"checkpoint": "theirs"}, "there is no such checkpoint"),
        ({"checkpoint": "../ours"}, "there is no such checkpoint"),
        ({"checkpoint": "ours", "sha256": "b" * 64}, "the checkpoint of this name has another content"),
    ],
)
def test_weights_that_are_not_there_are_refused(
    api: httpx.Client, app_store: Store, evaluate_body: Any, weights: Any, told: str
) -> None:
    upload(api)
    answer = api.post("/api/v1/jobs", json=evaluate_body(model={"name": "tiny_vit", "weights": weights}))
    assert answer.status_code == 422
    assert answer.json()["error"]["details"][0]["message"] == told


def test_weights_that_do_not_fit_the_job_are_refused(
    api: httpx.Client, app_store: Store, evaluate_body: Any
) -> None:
    upload(api)
    check(app_store, classes=1000)
    spec = evaluate_body(model={"name": "tiny_vit", "weights": {"checkpoint": "ours"}})
    (detail,) = api.post("/api/v1/jobs", json=spec).json()["error"]["details"]
    assert detail["message"] == "'digits' has 10 classes, the model is made for the 1000 of its weights"
    spec = evaluate_body(model={"name": "other_vit", "weights": {"checkpoint": "ours"}})
    details = api.post("/api/v1/jobs", json=spec).json()["error"]["details"]
    assert "the weights are of the model 'tiny_vit'" in [detail["message"] for detail in details]


def test_a_rejected_checkpoint_is_refused_with_its_reason(
    api: httpx.Client, app_store: Store, evaluate_body: Any
) -> None:
    upload(api)
    check(app_store, "norm.weight is missing")
    spec = evaluate_body(model={"name": "tiny_vit", "weights": {"checkpoint": "ours"}})
    (detail,) = api.post("/api/v1/jobs", json=spec).json()["error"]["details"]
    assert detail["message"] == "this checkpoint was rejected: norm.weight is missing"


def test_tenants_do_not_see_each_others(
    app_store: Store, settings: Settings, serve: Callable[..., Any], evaluate_body: Any
) -> None:
    def key(tenant: str, scope: Any) -> dict[str, str]:
        return {"Authorization": f"Bearer {app_store.keys.create(scope, [scope], tenant=tenant)[1]}"}

    mine, theirs, reading = key("me", "submit"), key("them", "submit"), key("me", "read")
    params = {"name": "ours", "model": "tiny_vit"}
    with serve(settings.model_copy(update={"require_keys": True}), app_store) as api:
        assert api.post(PATH, params=params, content=FILE).status_code == 401
        assert api.post(PATH, params=params, content=FILE, headers=reading).status_code == 403
        assert api.post(PATH, params=params, content=FILE, headers=mine).status_code == 202
        assert len(api.get(PATH, headers=reading).json()["items"]) == 1
        assert api.get(PATH, headers=theirs).json()["items"] == []
        assert api.get(f"{PATH}/ours", headers=theirs).status_code == 404
        assert api.delete(f"{PATH}/ours", headers=theirs).status_code == 404
        spec = evaluate_body(model={"name": "tiny_vit", "weights": {"checkpoint": "ours"}})
        assert api.post("/api/v1/jobs", json=spec, headers=theirs).status_code == 422
        assert api.post("/api/v1/jobs", json=spec, headers=mine).status_code == 201


def test_a_client_that_goes_away_leaves_nothing(
    api: httpx.Client, transport: Any, app_store: Store, settings: Settings
) -> None:
    coming = [
        {"type": "http.request", "body": FILE[:60], "more_body": True},
        {"type": "http.disconnect"},
    ]
    sent: list[Any] = []

    async def receive() -> Any:
        return coming.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": PATH,
        "raw_path": PATH.encode(),
        "query_string": b"name=ours&model=tiny_vit",
        "headers": [(b"host", b"127.0.0.1")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8000),
    }
    transport.do(transport.app(scope, receive, send))
    assert coming == []
    assert sent == []
    assert files(settings) == []
    assert app_store.checkpoints.page(tenant=None)[0] == []


def test_a_check_counts_as_no_job_on_the_overview(
    api: httpx.Client, app_store: Store, worker: Any, evaluate_body: Callable[..., dict[str, Any]]
) -> None:
    done = api.post("/api/v1/jobs", json=evaluate_body(name="measured")).json()["id"]
    worker.run(done, [1, 1, 0, 1], [1, 0, 0, 1])
    assert upload(api).status_code == 202
    counts = app_store.job_counts()
    assert sum(app_store.overview().jobs.values()) == 2
    assert counts == {"succeeded": 1}
    assert '<a href="/jobs?state=queued"><b>0</b>' in page(api, "/")


def test_an_upload_goes_to_the_object_store_once(
    s3_server: str, tmp_path: Path, app_store: Store, serve: Any
) -> None:
    chosen = Settings(state=tmp_path / "own", **settings_of(new_bucket(s3_server)))
    with serve(chosen, app_store) as api:
        assert [upload(api).status_code for _ in range(2)] == [202, 200]
        job_id = app_store.checkpoints.get("ours", tenant=None).job_id
        assert [*chosen.file_store.sizes(job_id)] == ["weights.safetensors"]
        assert chosen.file_store.holds(job_id, "weights.safetensors", DIGEST, len(FILE))
        assert [*chosen.file_store.sizes(STAGING)] == [], "of the second, which is the same"
        assert files(chosen) == []


def test_an_upload_without_the_object_store_is_refused(
    s3_server: str, tmp_path: Path, app_store: Store, serve: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(s3_files, "RETRIES", 0)
    network = Network(s3_server)
    network.mode = "down"
    place = replace(new_bucket(s3_server), endpoint=network.url)
    chosen = Settings(state=tmp_path / "own", **settings_of(place))
    with serve(chosen, app_store) as api:
        answer = upload(api)
        assert (answer.status_code, answer.json()["error"]["type"]) == (503, "unavailable")
        assert (files(chosen), api.get(PATH).json()["items"]) == ([], [])
        network.mode = "fine"
        assert upload(api).status_code == 202
    network.close()
