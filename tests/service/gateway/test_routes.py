"""The gateway's routes: what a key of workers opens, what a claim allows, and what is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest

from assay.service.app import create_app
from assay.service.client import AssayClient
from assay.service.client.transport import authorization
from assay.service.contract.errors import Forbidden, Unauthorized
from assay.service.contract.fleet import gateway as wire
from assay.service.contract.keys import Scope
from assay.service.dashboard.frame import made_once
from assay.service.gateway.calls import BODIES_OF_POOL, Shared
from assay.service.settings import Settings
from assay.service.store.fleet.fair_queue import CHECKS
from assay.service.store.store import Store
from assay.service.store.transactions.repetition import REPEAT
from assay.service.submission.limits import DEVICE_CLASSES
from assay.workers.identity import identity
from tests.service.conftest import AppTransport, running
from tests.support.gateways import worker_key
from tests.support.jobs import add, evaluate_spec, planned, train_spec

PATH = "/api/v1/worker"
ME = {"name": "host:0", "identity": identity()["digest"], "device_classes": ["cpu"]}
ASKED = {
    **ME,
    "worker": "host:k:1:2:0",
    "lease_seconds": 60.0,
    "without": [],
    "warm_job": None,
    "warm_shards": 0,
    "devices": 1,
    "lanes": [],
    "seen": "",
    "wait_seconds": 0.0,
}
JSON = {"Content-Type": "application/json"}
PROVENANCE = {
    "code": {"version": "1", "commit": None, "source_sha256": "s"},
    "packages": {},
    "device": {"type": "cpu"},
}


def key(store: Store, scope: Scope = "worker", tenant: str = "pool") -> dict[str, str]:
    return authorization(store.keys.create("n", [scope], tenant=tenant)[1])


def claimed(http: httpx.Client, header: dict[str, str]) -> dict[str, Any]:
    answer = http.post(f"{PATH}/claim", json=ASKED, headers=header)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()["claim"]
    return found


def finishing(held: dict[str, Any], **changes: Any) -> dict[str, Any]:
    n = held["stop"] - held["start"]
    return {
        "token": held["token"],
        "n": n,
        "columns": {"id": [str(i) for i in range(n)]},
        "seconds": 1.0,
        "forward_passes": n,
        "backward_passes": 0,
        "extra": {"attack": False, "evidence": {}, "provenance": PROVENANCE},
        **changes,
    }


@pytest.mark.parametrize("scope", ["read", "submit", "admin"])
def test_other_scopes_open_nothing_here(http: httpx.Client, store: Store, scope: Scope) -> None:
    for name in ("standing", "claim", "renew", "finish", "download", "upload", "sources"):
        answer = http.post(f"{PATH}/{name}", json={}, headers=key(store, scope))
        assert answer.status_code == 403, name
        assert "lacks the scope 'worker'" in answer.json()["error"]["message"]


def test_a_key_of_workers_opens_nothing_else(http: httpx.Client, store: Store) -> None:
    header = key(store)
    job_id = add(store, train_spec())
    for path in ("jobs", f"jobs/{job_id}", f"jobs/{job_id}/artifacts", "catalog", "workers", "keys"):
        assert http.get(f"/api/v1/{path}", headers=header).status_code == 403, path
    assert http.post("/api/v1/jobs", json={}, headers=header).status_code == 403


def test_a_token_of_another_pool_or_a_forged_one_is_refused(http: httpx.Client, store: Store) -> None:
    planned(store, 1)
    mine, theirs = key(store), key(store, tenant="others")
    held = claimed(http, mine)
    text, _, mark = held["token"].partition(".")
    forged = [f"{text}.{'0' * 64}", f"{text[:-4]}AAAA.{mark}", text, "", "é.é"]
    for header, token in [(theirs, held["token"]), *((mine, one) for one in forged)]:
        for name, more in (("renew", {"lease_seconds": 60.0}), ("sources", {}), ("canceled", {})):
            answer = http.post(f"{PATH}/{name}", json={"token": token, **more}, headers=header)
            assert answer.status_code == 409, (name, token)
        assert http.post(f"{PATH}/finish", json=finishing(held, token=token), headers=header).is_error
    (shard,) = store.shards.running()
    assert shard.owner == "pool:host:k:1:2:0"
    assert http.post(f"{PATH}/finish", json=finishing(held), headers=mine).json()["finished"] is not None


def test_a_replayed_token_reads_and_writes_nothing(http: httpx.Client, store: Store) -> None:
    job_id, header = planned(store, 1), key(store)
    held = claimed(http, header)
    assert http.post(f"{PATH}/finish", json=finishing(held), headers=header).status_code == 200
    before = store.results.outcomes(job_id, 0)
    again = http.post(f"{PATH}/finish", json=finishing(held, seconds=9.0), headers=header)
    assert again.json()["finished"] is not None, "the first answer may have been lost"
    assert store.results.outcomes(job_id, 0) == before
    for name in ("sources", "download"):
        more = {} if name == "sources" else {"job": job_id, "name": "a.csv", "known": None}
        answer = http.post(f"{PATH}/{name}", json={"token": held["token"], **more}, headers=header)
        assert answer.json()["error"]["message"] == "the claim stands no longer"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"columns": {"id": ["a"]}}, "the columns are not of 10 examples"),
        ({"n": 11, "columns": {"id": ["a"] * 11}}, "11 examples given; allowed: 10"),
        ({"extra": {}}, "extra: lacks attack"),
        ({"extra": {"attack": "x", "evidence": {}, "provenance": PROVENANCE}}, "extra.attack: 'x' is not of"),
        ({"columns": {"id": ["\0"] * 10}}, "columns"),
        ({"extra": {"attack": False, "evidence": {}, "provenance": PROVENANCE, "plan": {}}}, "plan"),
        ({"seconds": float("nan")}, "seconds"),
        ({"more": 1}, "more"),
    ],
)
def test_an_outcome_is_checked(http: httpx.Client, store: Store, changes: dict[str, Any], said: str) -> None:
    planned(store, 1)
    header = key(store)
    held = claimed(http, header)
    body = json.dumps(finishing(held, **changes))
    answer = http.post(f"{PATH}/finish", content=body, headers={**header, "Content-Type": "application/json"})
    assert answer.status_code == 422, answer.text
    assert said in answer.text
    assert store.shards.running(), "nothing is written"


PLAN: dict[str, Any] = {
    "device": "cpu",
    "batch_size": 5,
    "untrained": False,
    "weights_sha256": "w",
    "data_sha256": {"digits": "d"},
    "evaluations": [{"n": 10, "available": 10}],
    "shards": [{"evaluation": 0, "number": 0, "start": 0, "stop": 10, "cost": 1.0}],
}


def planning(held: dict[str, Any], requirements: Any = (), repeat: float = 0.0, **changes: Any) -> str:
    plan = PLAN | changes
    body = {"token": held["token"], "plan": plan, "requirements": [*requirements], "repeat": repeat}
    return json.dumps(body)


def test_a_plan_is_bounded_by_the_services_limits(store: Store, tmp_path: Path) -> None:
    job_id = add(store, evaluate_spec())
    app = create_app(Settings(state=tmp_path, require_keys=True, max_examples=5), store=store)
    with running(app) as transport, httpx.Client(transport=transport, base_url="http://127.0.0.1") as http:
        header = key(store)
        held = claimed(http, header)
        assert (held["kind"], held["spec"]["kind"]) == ("plan", "evaluate")
        answer = http.post(f"{PATH}/plan", content=planning(held), headers={**header, **JSON})
        assert answer.json() == {"taken": False}
    error = store.jobs.get(job_id).error
    assert error is not None
    assert error["type"] == "over_limit"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"estimated_seconds": float("nan")}, "estimated_seconds: nan; allowed: finite numbers"),
        ({"forward_flops": float("inf")}, "forward_flops: inf; allowed: finite numbers"),
        ({"shards": [{**PLAN["shards"][0], "cost": float("nan")}]}, "cost: nan; allowed: finite numbers"),
        ({"shards": PLAN["shards"] * 2}, "its shards have not each a number of their own"),
        ({"shards": []}, "evaluations[0]: its shards have 0 examples, the evaluation 10"),
        ({"requirements": [{}, {}]}, "requirements: of 2 evaluations, the job has 1"),
        (
            {
                "shards": [
                    {"evaluation": 0, "number": 0, "start": 0, "stop": 10**9, "cost": 1.0},
                    {"evaluation": 0, "number": 1, "start": 10**9, "stop": 0, "cost": 1.0},
                ]
            },
            "evaluations[0]: its shards do not follow each other",
        ),
    ],
)
def test_a_plan_is_checked(http: httpx.Client, store: Store, changes: dict[str, Any], said: str) -> None:
    job_id, header = add(store, evaluate_spec()), key(store)
    held = claimed(http, header)
    answer = http.post(f"{PATH}/plan", content=planning(held, **changes), headers={**header, **JSON})
    assert answer.status_code == 422, answer.text
    assert said in "; ".join(one["message"] for one in answer.json()["error"]["details"])
    assert [shard.kind for shard in store.shards.of(job_id)] == ["plan"], "nothing is written"
    taken = http.post(f"{PATH}/plan", content=planning(held), headers={**header, **JSON})
    assert taken.json() == {"taken": True}
    again = http.post(f"{PATH}/plan", content=planning(held), headers={**header, **JSON})
    assert again.json() == {"taken": False}, "the first answer may have been lost"


@pytest.mark.parametrize(
    ("stated", "set_here", "others", "kept"),
    [
        (1.0, None, False, 1.0),
        (0.0, 0.5, True, None),
        (None, 0.5, False, 0.5),
        (None, None, False, None),
        (None, None, True, REPEAT),
    ],
)
def test_the_share_of_repeated_shards_is_the_jobs_or_the_services_and_no_workers_word(
    store: Store,
    tmp_path: Path,
    stated: float | None,
    set_here: float | None,
    others: bool,
    kept: float | None,
) -> None:
    execution = {"device": "auto", "dtype": "float32", "batch_size": "auto"}
    more = {} if stated is None else {"repeat": stated}
    job_id, header = add(store, evaluate_spec(execution=execution | more)), key(store)
    if others:
        store.workers.beat("pool:other", "host", ["cpu"], 1, {}, identity=ME["identity"])
    app = create_app(Settings(state=tmp_path, require_keys=True, repeat=set_here), store=store)
    with running(app) as transport, httpx.Client(transport=transport, base_url="http://127.0.0.1") as http:
        body = planning(claimed(http, header), repeat=0.25)
        assert http.post(f"{PATH}/plan", content=body, headers={**header, **JSON}).json() == {"taken": True}
    plan = store.jobs.get(job_id).plan
    assert plan is not None
    assert plan.get("repeat") == kept


def test_calls_are_as_strict_as_other_routes(http: httpx.Client, store: Store) -> None:
    header = key(store)
    answer = http.post(f"{PATH}/claim?waitt=1", json=ASKED, headers=header)
    assert answer.status_code == 422
    assert answer.json()["error"]["details"][0]["message"] == "unknown parameter"
    text = http.post(f"{PATH}/claim", content="{}", headers={**header, "Content-Type": "text/plain"})
    assert text.status_code == 415
    for wrong in ('{"worker": "a", "worker": "b"}', '{"worker": NaN}'):
        answer = http.post(f"{PATH}/claim", content=wrong, headers={**header, **JSON})
        assert (answer.status_code, answer.json()["error"]["type"]) == (400, "malformed_json")


def test_small_outcomes_are_taken_however_many_come(store: Store, tmp_path: Path) -> None:
    app = create_app(Settings(state=tmp_path, require_keys=True), store=store)
    planned(store, 1)
    with running(app) as transport, httpx.Client(transport=transport, base_url="http://127.0.0.1") as http:
        header = key(store)
        held = claimed(http, header)
        made_once(app, Shared).held["pool"] = BODIES_OF_POOL
        large = finishing(held, columns={"id": ["x" * 10_000 for _ in range(10)]})
        assert http.post(f"{PATH}/finish", json=large, headers=header).status_code == 429
        assert http.post(f"{PATH}/finish", json=finishing(held), headers=header).status_code == 200


def test_a_cordoned_worker_and_an_unknown_identity_get_nothing(http: httpx.Client, store: Store) -> None:
    planned(store, 1)
    header = key(store)
    beat = {
        "worker": "host:k:1:2:0",
        "host": "host",
        "device_classes": ["cpu"],
        "pid": 1,
        "gauges": {},
        "devices": 1,
        "name": "host:0",
        "identity": ME["identity"],
    }
    assert http.post(f"{PATH}/standing", json={**ME, "beat": beat}, headers=header).json()["admitted"]
    for staged in ({str(n): "a" * 64 for n in range(201)}, ["birds"], {"birds": 1}):
        bad = {**ME, "beat": {**beat, "gauges": {"staged": staged}}}
        assert http.post(f"{PATH}/standing", json=bad, headers=header).status_code == 422
    store.cordons.set("pool:host:0", drain=False, by_whom="me")
    answer = http.post(f"{PATH}/claim", json=ASKED, headers=header).json()
    assert answer["claim"] is None
    assert answer["standing"]["cordon"]["name"] == "host:0"
    store.cordons.lift("pool:host:0")
    store.identities.rule(str(ME["identity"]), "withdrawn", "me")
    answer = http.post(f"{PATH}/claim", json=ASKED, headers=header).json()
    assert (answer["claim"], answer["standing"]["admitted"]) == (None, False)


def test_a_key_is_exchanged_while_a_claim_runs(http: httpx.Client, store: Store) -> None:
    planned(store, 1)
    old, text = store.keys.create("old", ["worker"], tenant="pool")
    held = claimed(http, authorization(text))
    new = key(store)
    store.keys.revoke(old.id)
    body = {"token": held["token"], "lease_seconds": 60.0}
    assert http.post(f"{PATH}/renew", json=body, headers=authorization(text)).status_code == 401
    assert http.post(f"{PATH}/renew", json=body, headers=new).json() == {"verdict": "run"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"identity": "%(x)s"}, "identity"),
        ({"worker": "a%(x)s"}, "worker"),
        ({"name": "\n"}, "name"),
        ({"without": ["%s"]}, "without"),
        ({"warm_job": "%(x)s"}, "warm_job"),
        ({"device_classes": ["tpu"]}, '"allowed":["cpu","cuda","checks"]'),
        ({"devices": 2**40}, "must be at most 64"),
        ({"lanes": [{"device": "cpu", "identity": "", "requirements": "%(x)s"}]}, "requirements"),
        ({"lanes": [{"device": "tpu", "identity": "", "requirements": ""}]}, "lanes"),
    ],
)
def test_a_worker_says_what_a_statement_can_hold(
    http: httpx.Client, store: Store, changes: dict[str, Any], said: str
) -> None:
    answer = http.post(f"{PATH}/claim", json={**ASKED, **changes}, headers=key(store))
    assert answer.status_code == 422, answer.text
    assert said in answer.text


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("online", {"device": "cpu", "devices": 65, "besides": ""}),
        ("online", {"device": "%(x)s", "devices": 1, "besides": ""}),
        ("unmet", {"device": "cpu", "requirements": "%(x)s"}),
        ("expire", {"worker": "%(x)s"}),
        ("gone", {"worker": "%(x)s"}),
        ("standing", {**ME, "identity": "%(x)s"}),
    ],
)
def test_other_calls_too_say_what_a_statement_can_hold(
    http: httpx.Client, store: Store, name: str, body: dict[str, Any]
) -> None:
    assert http.post(f"{PATH}/{name}", json=body, headers=key(store)).status_code == 422


def test_the_wire_knows_the_services_device_classes() -> None:
    assert get_args(wire.WireDevice) == (*DEVICE_CLASSES, CHECKS)
    assert get_args(wire.WireLaneDevice) == ("auto", *DEVICE_CLASSES, CHECKS)


def test_a_key_is_tried_before_workers_get_it(transport: AppTransport, store: Store) -> None:
    admin = store.keys.create("fleet", ["admin"])[1]
    with AssayClient(key=admin, transport=transport) as client:
        client.try_gateway(worker_key(store))
        for wrong in ("", "assay_unknown"):
            with pytest.raises(Unauthorized):
                client.try_gateway(wrong)
        with pytest.raises(Forbidden):
            client.try_gateway(admin)
