"""Workers over HTTP, for administrators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from assay.service.settings import Settings
from assay.service.store.store import Store

WORKERS = "/api/v1/workers"
OTHER = "b2" * 8
ALLOW = f"/identities/{OTHER}"
TESTED = {
    "torch": "2.15",
    "cuda": "13.2",
    "nccl": "2.30",
    "deterministic": True,
    "source_sha256": "ab",
    "devices": [
        {"device": "cpu", "name": "EPYC", "fault": None, "total": 8, "free": 4, "capability": None},
        {"device": "cuda:0", "name": "H200", "fault": "lost", "total": 8, "free": 4, "capability": "9.0"},
    ],
}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"require_keys": True})


@pytest.fixture
def key(app_store: Store) -> Callable[..., dict[str, str]]:
    def key(scope: Any = "admin") -> dict[str, str]:
        return {"Authorization": f"Bearer {app_store.keys.create('ops key', [scope])[1]}"}

    return key


def test_the_list_says_what_each_worker_is(api: httpx.Client, app_store: Store, key: Any) -> None:
    gauges: Any = {"self_test": TESTED, "unfit": {"cuda": "cuda:0: lost"}, "catalog": "c" * 64}
    gauges |= {"folders": ["cifar"], "data": {"cifar10": "d" * 64}, "lacks": {"1": "no GPU", "2": "no GPU"}}
    gauges["proposal"] = "ASSAY_WORKERS_PER_GPU=4"
    app_store.workers.beat("w0", "box", ["cpu"], 7, gauges, 1, name="box:gpu0")
    app_store.workers.beat("w1", "box", ["cuda"], 8, {"cordoned": "cpu: wrong"}, 0, name="box:gpu1")
    contained: Any = {"containment": {"mode": "required", "missing": ["files"]}}
    app_store.workers.beat("w2", "box", ["cpu"], 9, contained, 0, name="box:gpu2")
    first, second, third = api.get(WORKERS, headers=key()).json()["items"]
    assert first["name"] == "box:gpu0"
    assert (first["state"], first["device_classes"], first["pid"]) == ("online", ["cpu"], 7)
    assert first["unfit"] == {"cuda": "cuda:0: lost"}
    assert first["self_test"] == TESTED["devices"]
    assert (first["torch"], first["cuda"], first["catalog"]) == ("2.15", "13.2", "c" * 64)
    assert first["proposal"] == "ASSAY_WORKERS_PER_GPU=4"
    assert (first["folders"], first["data"], first["lacks"]) == (["cifar"], {"cifar10": "d" * 64}, ["no GPU"])
    assert (second["state"], second["reason"]) == ("unfit", "cpu: wrong")
    assert (third["state"], third["reason"]) == (
        "unfit",
        "its evaluators cannot be contained; missing: files",
    )


def test_cordon_drain_and_uncordon(api: httpx.Client, app_store: Store, key: Any) -> None:
    app_store.workers.beat("w0", "box", ["cpu"], 7, {}, 1, name="box:gpu0")
    admin = key()
    found = api.post(f"{WORKERS}/box:gpu0/cordon", headers=admin)
    assert found.status_code == 200, found.text
    body = found.json()
    assert body["state"] == "cordoned"
    assert body["reason"].startswith("cordoned by ops key (key ")
    assert body["cordon"]["drain"] is False
    assert api.get("/readyz").json()["workers_online"]["auto"] == 0
    assert api.post(f"{WORKERS}/box:gpu0/drain", headers=admin).json()["cordon"]["drain"] is True
    lifted = api.post(f"{WORKERS}/box:gpu0/uncordon", headers=admin).json()
    assert (lifted["state"], lifted["cordon"], lifted["reason"]) == ("online", None, None)
    again = api.post(f"{WORKERS}/box:gpu0/uncordon", headers=admin)
    assert again.status_code == 200, "it is in service, as was asked"
    actions = [entry["action"] for entry in api.get("/api/v1/audit", headers=admin).json()["items"]]
    assert actions[:4] == ["worker.uncordon", "worker.uncordon", "worker.drain", "worker.cordon"]


def test_an_unknown_worker_is_404_with_the_nearest(api: httpx.Client, app_store: Store, key: Any) -> None:
    app_store.workers.beat("w0", "box", ["cpu"], 7, {}, 1, name="box:gpu0")
    for action in ("cordon", "drain", "uncordon"):
        answer = api.post(f"{WORKERS}/box:gpu9/{action}", headers=key())
        assert answer.status_code == 404
        assert answer.json()["error"]["details"][0]["nearest"] == "box:gpu0"
    assert api.post(f"{WORKERS}/{'x' * 301}/cordon", headers=key()).status_code == 422
    assert api.post(f"{WORKERS}/box:gpu0/cordn", headers=key()).status_code == 404
    assert api.post(f"{WORKERS}/box:gpu0/cordon?force=1", headers=key()).status_code == 422


@pytest.mark.parametrize("scope", ["read", "submit"])
def test_only_administrators_see_and_change_workers(api: httpx.Client, key: Any, scope: str) -> None:
    header = key(scope)
    actions = ("/x/cordon", "/x/drain", "/x/uncordon", f"{ALLOW}/allow", f"{ALLOW}/withdraw")
    for method, path in (("GET", ""), ("GET", "/identities"), *(("POST", action) for action in actions)):
        answer = api.request(method, WORKERS + path, headers=header)
        assert answer.status_code == 403
        assert "'admin'" in answer.json()["error"]["message"]


def test_a_report_of_another_version_hides_no_worker(api: httpx.Client, app_store: Store, key: Any) -> None:
    other: Any = {"self_test": TESTED | {"devices": [{"gpu": 1}]}}
    app_store.workers.beat("w0", "box", ["cpu"], 7, other, 1, name="box:gpu0")
    (found,) = api.get(WORKERS, headers=key()).json()["items"]
    assert found["self_test"] == []


def test_a_worker_of_other_code_is_unknown_until_an_administrator_allows_it(
    api: httpx.Client, app_store: Store, key: Any
) -> None:
    app_store.identities.declare({"version": "1.0", "source_sha256": "ab" * 32})
    code: Any = {"code": {"version": "1.0", "commit": "f00d", "source_sha256": "cd" * 32}}
    app_store.workers.beat("w0", "box", ["cpu"], 7, code, 1, "box:0", OTHER)
    app_store.workers.beat("w1", "box", ["cpu"], 7, {}, 1, "box:1", "")
    admin = key()
    first, older = api.get(WORKERS, headers=admin).json()["items"]
    assert (first["state"], first["identity"], first["version"]) == ("unknown", OTHER, "1.0")
    assert (first["commit"], first["source_sha256"]) == ("f00d", "cd" * 32)
    assert first["reason"] == (
        f"its identity {OTHER} (version 1.0, commit f00d) is not the service's own release's;"
        f" assay workers allow {OTHER}"
    )
    assert (older["state"], older["identity"], older["version"]) == ("unknown", None, None)
    assert "identity none (an earlier version, which takes work all the same: stop it" in older["reason"]
    allowed = api.post(f"{WORKERS}{ALLOW}/allow", headers=admin)
    assert allowed.status_code == 200, allowed.text
    body = allowed.json()
    assert (body["identity"], body["verdict"], body["workers"]) == (OTHER, "allowed", 1)
    assert body["by"].startswith("ops key (key ")
    assert api.get(WORKERS, headers=admin).json()["items"][0]["state"] == "online"
    assert api.post(f"{WORKERS}{ALLOW}/withdraw", headers=admin).json()["verdict"] == "withdrawn"
    withdrawn = api.get(WORKERS, headers=admin).json()["items"][0]
    assert (withdrawn["state"], withdrawn["reason"]) == (
        "unknown",
        f"an administrator has withdrawn its identity {OTHER} (version 1.0, commit f00d);"
        f" assay workers allow {OTHER}",
    )
    listed = api.get(f"{WORKERS}/identities", headers=admin).json()["items"]
    assert [(one["identity"], one["verdict"]) for one in listed] == [
        ("ab" * 32, "declared"),
        (OTHER, "withdrawn"),
    ]
    actions = [entry["action"] for entry in api.get("/api/v1/audit", headers=admin).json()["items"]]
    assert actions[:2] == ["worker.withdraw", "worker.allow"]


@pytest.mark.parametrize("digest", ["b2", "B2" * 8, "x" * 16, "b2" * 32])
def test_what_is_no_digest_is_refused(api: httpx.Client, key: Any, digest: str) -> None:
    answer = api.post(f"{WORKERS}/identities/{digest}/allow", headers=key())
    assert answer.status_code == 422
    assert answer.json()["error"]["details"][0]["loc"] == ["path", "digest"]
