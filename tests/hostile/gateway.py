"""A stolen key of workers: every attempt to do more with it than its claims allow."""

from __future__ import annotations

import hashlib
from typing import Any

import httpx

from assay.service.client import AssayClient
from assay.service.client.transport import authorization
from assay.service.store.store import open_store
from assay.workers.identity import code, identity
from tests.hostile.attempt import Attempt, Target
from tests.hostile.signing import SPEC

API = "/api/v1"
ME = {"name": "host:0", "identity": identity()["digest"], "device_classes": ["cuda"]}
SECONDS = 30.0


class Thief:
    """A key of workers with the claim of a job of alice's, which no other worker takes: it wants a GPU."""

    def __init__(self, target: Target, tenant: str = "pool") -> None:
        with open_store(target.database, migrate=False) as store:
            self.key = store.keys.create("thief", ["worker"], tenant=tenant)[1]
        self.http = httpx.Client(
            base_url=target.url + API, headers=authorization(self.key), timeout=SECONDS, trust_env=False
        )
        with AssayClient(target.url, target.alice) as client:
            self.job = client.submit({**SPEC, "execution": {"device": "cuda"}}).id
        beat = {"worker": "w", "host": "host", "device_classes": ["cuda"], "pid": 1, "devices": 1}
        gauges = {"code": code()}
        self.ask(
            "standing", **ME, beat={**beat, "name": "host:0", "identity": ME["identity"], "gauges": gauges}
        )
        asked = {"worker": "w", "lease_seconds": 60.0, "without": [], "warm_job": None, "warm_shards": 0}
        more = {"devices": 1, "lanes": [], "seen": "", "wait_seconds": 0.0}
        self.claim = self.ask("claim", **ME, **asked, **more).json()["claim"]
        assert self.claim is not None, "the attempts need a claim"

    def ask(self, call: str, **body: Any) -> httpx.Response:
        return self.http.post(f"/worker/{call}", json=body)


def refusal(answer: httpx.Response, *statuses: int) -> str:
    assert answer.status_code in statuses, f"{answer.status_code}: {answer.text[:200]}"
    return f"{answer.status_code} {answer.json()['error']['message'][:70]}"


def lists_everything(target: Target) -> str:
    thief = Thief(target)
    paths = ("jobs", f"jobs/{thief.job}", "keys", "workers", "checkpoints", "audit", "tenants", "catalog")
    said = [refusal(thief.http.get(f"/{path}"), 403) for path in paths]
    said.append(refusal(thief.http.post("/jobs", json=SPEC), 403))
    return said[0]


def others_claim(target: Target) -> str:
    for key in (target.admin, target.alice):
        with httpx.Client(base_url=target.url + API, headers=authorization(key), trust_env=False) as http:
            said = refusal(http.post("/worker/standing", json=ME), 403)
    return said


def forged_fence(target: Target) -> str:
    thief = Thief(target)
    text, _, mark = thief.claim["token"].partition(".")
    for token in (f"{text}.{'0' * 64}", f"{text[:-8]}AAAAAAAA.{mark}", f"{mark}.{text}", "." * 4000):
        said = refusal(thief.ask("renew", token=token, lease_seconds=60.0), 409)
    return said


def token_of_another_pool(target: Target) -> str:
    thief, other = Thief(target), Thief(target, "others")
    refusal(other.ask("sources", token=thief.claim["token"]), 409)
    return refusal(other.ask("canceled", token=thief.claim["token"]), 409)


def replay(target: Target) -> str:
    thief = Thief(target)
    token = thief.claim["token"]
    assert thief.ask("release", token=token, message="", fault=False).status_code == 200
    with AssayClient(target.url, target.alice) as client:
        client.cancel(thief.job)
    return refusal(thief.ask("sources", token=token), 409)


def files_of_others(target: Target) -> str:
    thief = Thief(target)
    token = thief.claim["token"]
    with AssayClient(target.url, target.bob) as client:
        theirs = client.submit({**SPEC, "execution": {"device": "cuda"}}).id
    for job, name in (
        (theirs, "weights.safetensors"),
        (thief.job, "../assay.sqlite"),
        ("..", "assay.sqlite"),
    ):
        said = refusal(thief.ask("download", token=token, job=job, name=name, known=None), 409)
    for name in ("../../x", ".upload-x", "outcomes-000-clean.csv", "weights.safetensors"):
        params = {"name": name, "sha256": hashlib.sha256(b"x").hexdigest()}
        headers = {"Assay-Claim": token}
        answer = thief.http.post("/worker/upload", params=params, content=b"x", headers=headers)
        said = refusal(answer, 409)
    return said


def large_bodies(target: Target) -> str:
    thief = Thief(target)
    refusal(thief.ask("log", token=thief.claim["token"], message="x" * 2_000_000), 413)
    deep = '{"token":' + "[" * 2_000_000
    headers = {"Content-Type": "application/json"}
    for call in ("finish", "plan"):
        said = refusal(thief.http.post(f"/worker/{call}", content=deep, headers=headers), 422)
    return said


def strange_reports(target: Target) -> str:
    thief = Thief(target)
    token = thief.claim["token"]
    plan = {"device": "cuda", "shards": [{"evaluation": 0, "number": 0, "start": 0, "stop": 10**12}]}
    refusal(thief.ask("plan", token=token, plan=plan, requirements=[], repeat=0.0), 422)
    refusal(thief.ask("checked", token=token, verdict={}, error=None), 422)
    refusal(thief.ask("fail", token=token, error_type="A B", message="", retry=True, fingerprint=None), 422)
    body = {"counters": [{"name": "assay_x", "labels": {}, "amount": -1.0}]}
    return refusal(thief.ask("counters", **body), 422)


ATTEMPTS = (
    Attempt("a key of workers lists and submits", lists_everything),
    Attempt("a key of another scope asks the gateway", others_claim),
    Attempt("a forged fence", forged_fence),
    Attempt("a token of another pool", token_of_another_pool),
    Attempt("a replayed token", replay),
    Attempt("files of other jobs, and files outside", files_of_others),
    Attempt("bodies of megabytes and a million levels", large_bodies),
    Attempt("plans, verdicts, errors and counters that are none", strange_reports),
)
