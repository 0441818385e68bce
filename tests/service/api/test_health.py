from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy.exc import OperationalError

from assay.service.api import deps
from assay.service.settings import Settings
from assay.service.store.store import Store
from tests.service.conftest import CATALOG
from tests.support.servers import PrivateRedis


def test_liveness(api: httpx.Client) -> None:
    assert api.get("/healthz").json() == {"status": "ok"}


def test_readiness_counts_the_workers(api: httpx.Client, app_store: Any) -> None:
    app_store.workers.beat("a", "host", ["cpu"], 1)
    app_store.workers.beat("b", "host", ["cuda", "cpu"], 2)
    answer = api.get("/readyz")
    assert answer.status_code == 200
    assert answer.json() == {
        "status": "ready",
        "database": "ok",
        "redis": "unused",
        "artifacts": "writable",
        "file_store": "folder: ok",
        "wrong_files": 0,
        "workers_online": {"auto": 2, "cpu": 2, "cuda": 1},
        "workers_with_another_catalog": 0,
        "containment_missing": {},
        "containment_optional": {},
        "workers_refusing": 0,
        "other_data": {},
        "workers_cordoned": 0,
        "workers_unfit": 0,
        "unfit": {},
        "workers_unknown": {},
        "data_disagreements": [],
    }


def test_readiness_counts_the_workers_whose_components_are_others(api: httpx.Client, app_store: Any) -> None:
    app_store.workers.beat("a", "host", ["cpu"], 1, {"catalog": CATALOG.digest})
    app_store.workers.beat("b", "host", ["cpu"], 2, {"catalog": "f" * 64})
    app_store.workers.beat("old", "host", ["cpu"], 3, {"gpu": {}})
    assert api.get("/readyz").json()["workers_with_another_catalog"] == 1


def test_readiness_needs_no_workers(api: httpx.Client) -> None:
    assert api.get("/readyz").json()["workers_online"] == {"auto": 0, "cpu": 0, "cuda": 0}


def test_a_full_or_missing_disk_is_said_and_is_no_failure(api: httpx.Client, settings: Settings) -> None:
    settings.artifacts.mkdir(exist_ok=True)
    settings.artifacts.rmdir()
    settings.artifacts.write_text("a file where the folder should be")
    answer = api.get("/readyz")
    assert (answer.status_code, answer.json()["artifacts"]) == (200, "not_writable")


@pytest.mark.parametrize(("state", "said"), [("running", "ok"), ("stopped", "away")])
def test_redis_is_said_and_is_no_failure(
    serve: Callable[..., Any], app_store: Store, tmp_path: Path, state: str, said: str
) -> None:
    with PrivateRedis() as server:
        settings = Settings(
            mode="distributed",
            state=tmp_path,
            database_url="postgresql+psycopg://assay@127.0.0.1/assay",
            redis_url=server.url,
        )
        if state == "stopped":
            server.stop()
        with serve(settings, app_store) as api:
            answer = api.get("/readyz")
            assert (answer.status_code, answer.json()["redis"]) == (200, said)


def test_a_database_that_goes_away_is_503(
    api: httpx.Client,
    app_store: Any,
    train_body: Callable[..., dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def away(*args: Any, **options: Any) -> None:
        raise OperationalError("SELECT 1", {}, sqlite3.OperationalError("database is locked"))

    monkeypatch.setattr(app_store, "ping", away)
    monkeypatch.setattr(app_store.jobs, "add", away)
    monkeypatch.setattr(app_store.jobs, "listed", away)
    for answer in (api.get("/readyz"), api.post("/api/v1/jobs", json=train_body()), api.get("/api/v1/jobs")):
        assert answer.status_code == 503
        assert answer.json()["error"]["type"] == "unavailable"
        assert "retry-after" in answer.headers
        assert "SELECT" not in answer.text
    assert api.get("/healthz").status_code == 200


def test_a_database_that_is_away_at_the_start_is_opened_later(
    serve: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(url: str, *, migrate: bool) -> Store:
        raise OperationalError("", {}, sqlite3.OperationalError("connection refused"))

    monkeypatch.setattr(deps, "open_store", away)
    with serve(Settings(state=tmp_path)) as api:
        assert api.get("/readyz").status_code == 503
        monkeypatch.undo()
        assert api.get("/readyz").status_code == 200
        assert (tmp_path / "assay.sqlite").exists()


def test_readiness_says_what_evaluators_lack(api: httpx.Client, app_store: Any) -> None:
    lacking = {"mode": "auto", "missing": ["files", "signals"]}
    refusing = {"mode": "required", "missing": ["signals"]}
    app_store.workers.beat("a", "box", ["cpu"], 1, {"containment": lacking})
    app_store.workers.beat("b", "box", ["cpu"], 1, {"containment": refusing}, 0)
    demanding = {"mode": "auto", "missing": ["user"]}
    app_store.workers.beat("c", "box", ["cpu"], 1, {"containment": demanding}, 0)
    body = api.get("/readyz").json()
    assert body["containment_missing"] == {"files": 1, "signals": 2, "user": 1}
    assert body["workers_refusing"] == 2
    assert body["workers_online"] == {"auto": 1, "cpu": 1, "cuda": 0}


def test_readiness_says_whose_data_differ_from_a_plan(api: httpx.Client, app_store: Any) -> None:
    app_store.workers.beat("b", "box", ["cpu"], 2, {"other_data": ["cifar10: 12 here, 34 in the plan"]})
    app_store.workers.beat("c", "box", ["cpu"], 3, {"other_data": ["cifar10: 12 here, 34 in the plan"]})
    body = api.get("/readyz").json()
    assert body["other_data"] == {"cifar10: 12 here, 34 in the plan": 2}


def test_readiness_says_which_workers_take_no_work_and_why(api: httpx.Client, app_store: Any) -> None:
    unfit = {"unfit": {"cuda": "cuda:0: no driver"}}
    app_store.workers.beat("a", "box", ["cpu"], 1, unfit, 1, name="box:0")
    app_store.workers.beat(
        "b", "box", ["cuda", "cpu"], 2, {**unfit, "cordoned": "all broken"}, 0, name="box:1"
    )
    app_store.workers.beat("c", "box", ["cpu"], 3, {}, 1, name="box:2")
    app_store.cordons.set("box:2", drain=False, by_whom="ops")
    body = api.get("/readyz").json()
    assert body["unfit"] == {"cuda: cuda:0: no driver": 2}
    assert (body["workers_cordoned"], body["workers_unfit"]) == (1, 1)
    assert body["workers_online"] == {"auto": 1, "cpu": 1, "cuda": 0}


def test_no_text_of_a_job_is_told_without_a_key(api: httpx.Client, app_store: Any) -> None:
    said = (
        "the data set text_table(column=<b>(x)</b>, file=a) has the content 12 on this worker, 34 in the plan"
    )
    label = "image_corruptions(folder=<b>(x)</b>) blur/3"
    cells = f"the data set {label} has the content 12 on this worker, 34 in the plan"
    for worker, sha256 in (("b", "ab" * 32), ("c", "cd" * 32)):
        gauges = {"other_data": [said, cells], "data": {label: sha256, f"{label} fog/3": sha256}}
        app_store.workers.beat(worker, "box", ["cpu"], 2, gauges)
    answer = api.get("/readyz")
    assert answer.json()["other_data"] == {
        "the data set text_table has the content 12 on this worker, 34 in the plan": 2,
        "the data set image_corruptions has the content 12 on this worker, 34 in the plan": 2,
    }
    assert answer.json()["data_disagreements"] == [
        "image_corruptions: abababababab on 1 workers; cdcdcdcdcdcd on 1 workers"
    ]
    assert "<b>" not in answer.text


def test_readiness_says_which_code_waits_for_an_administrator(api: httpx.Client, app_store: Any) -> None:
    other = {"code": {"version": "1.0", "commit": "f00d", "source_sha256": "cd" * 32}}
    for worker in ("a", "b"):
        app_store.workers.beat(worker, "box", ["cpu"], 1, other, 1, f"box:{worker}", "b2" * 8)
    app_store.workers.beat("c", "box", ["cpu"], 1)
    assert api.get("/readyz").json()["workers_unknown"] == {}
    app_store.identities.declare({"version": "1.0", "source_sha256": "ab" * 32})
    said = f"identity {'b2' * 8} (version 1.0, commit f00d)"
    allow = f"assay workers allow {'b2' * 8}"
    body = api.get("/readyz").json()
    assert body["workers_unknown"] == {
        "identity none (an earlier version) waits for an administrator": 1,
        f"{said} waits for an administrator: {allow}": 2,
    }
    assert (body["workers_online"]["auto"], body["workers_unfit"]) == (0, 0)
    app_store.identities.rule("b2" * 8, "withdrawn", "ops")
    assert f"{said} is withdrawn by an administrator: {allow}" in api.get("/readyz").json()["workers_unknown"]
    app_store.identities.rule("b2" * 8, "allowed", "ops")
    assert api.get("/readyz").json()["workers_online"]["auto"] == 2


def test_what_workers_say_is_bounded(api: httpx.Client, app_store: Any) -> None:
    said = [f"{n} " + "x" * 5000 for n in range(300)]
    app_store.workers.beat("b", "box", ["cpu"], 2, {"other_data": said, "unfit": dict.fromkeys(said, "y")})
    body = api.get("/readyz").json()
    for told in (body["other_data"], body["unfit"]):
        assert len(told) == 100
        assert max(map(len, told)) <= 303
