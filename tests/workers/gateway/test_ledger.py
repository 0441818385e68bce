"""The calls that an idle worker makes, and its life at a gateway that goes and comes back."""

from __future__ import annotations

import json
import threading
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from assay.service.store.fleet.fair_queue import CHECKS
from assay.service.store.rows import Claim
from assay.service.store.store import Store
from assay.workers.gateway.connection import Gateway
from assay.workers.gateway.files import GatewayFiles
from assay.workers.gateway.ledger import GatewayLedger, NodeWait
from assay.workers.supervision.ledger import GatewayAway
from assay.workers.supervision.supervisor import Supervisor
from tests.support.gateways import ledger_of, node_settings, serving, worker_key
from tests.support.jobs import planned
from tests.support.workers import settings, submit, wait_for
from tests.workers.supervision.test_checks import upload
from tests.workers.supervision.test_ledger import asked, heartbeat, outcome


class Counted(Gateway):
    """A gateway's connection that counts its calls."""

    def call(self, name: str, body: Any, *, wait: float = 0.0) -> Any:
        self.__dict__.setdefault("calls", []).append(name)
        return super().call(name, body, wait=wait)


def test_an_idle_worker_makes_one_call_a_turn(store: Store, tmp_path: Path) -> None:
    with serving(store, tmp_path / "service") as server:
        chosen = node_settings(tmp_path / "node", server.url, worker_key(store))
        gateway = Counted(chosen)
        ledger = GatewayLedger(gateway, GatewayFiles(gateway, chosen), 0.2)
        for _ in range(3):
            assert ledger.cordon("host:0") is None
            assert ledger.lanes() == []
            ledger.beat(heartbeat())
            assert ledger.admits(heartbeat().identity)
            assert ledger.claim(asked()) is None
            assert not ledger.being_planned(["cpu"])
        gateway.close()
    assert gateway.__dict__["calls"] == ["/standing", "/standing", "/claim", "/claim", "/claim"]
    (worker,) = store.online_workers()
    assert worker.worker == "pool:host:boot:1:2:0"


def test_a_renewal_says_whether_the_worker_is_cordoned(store: Store, tmp_path: Path) -> None:
    with serving(store, tmp_path / "service") as server:
        chosen = node_settings(tmp_path / "node", server.url, worker_key(store))
        gateway = Counted(chosen)
        ledger = GatewayLedger(gateway, GatewayFiles(gateway, chosen), 0.2)
        assert ledger.cordon("host:0") is None
        ledger.beat(heartbeat())
        submit(store, "shards=1")
        held = ledger.claim(asked())
        assert held is not None
        for drain in (False, True):
            store.cordons.set("pool:host:0", drain=drain, by_whom="me")
            ledger._stood_at = float("-inf")
            assert ledger.renew(held, 60.0) == "run"
            found = ledger.cordon("host:0")
            assert found is not None
            assert (found.name, found.drain) == ("host:0", drain)
        gateway.close()
    assert gateway.__dict__["calls"] == ["/standing", "/claim", "/renew", "/renew"]


def test_progress_comes_with_the_renewals(store: Store, tmp_path: Path) -> None:
    with serving(store, tmp_path / "service") as server:
        chosen = node_settings(tmp_path / "node", server.url, worker_key(store))
        gateway = Counted(chosen)
        ledger = GatewayLedger(gateway, GatewayFiles(gateway, chosen), 0.2)
        job_id = planned(store, 2)
        for done in (0, 10):
            held = ledger.claim(asked())
            assert held is not None
            for more in (1, 2, 3):
                ledger.progress(held, more, None, "clean", {})
            assert ledger.renew(held, 60.0) == "run"
            wait_for(lambda done=done: store.jobs.get(job_id).progress_done == done + 3)  # type: ignore[misc]
            assert ledger.renew(held, 60.0) == "run"
            ledger.progress(held, 4, None, "clean", {})
            assert ledger.finish(held, outcome(held)) is not None
        assert ledger.renew(held, 60.0) == "lost"
        gateway.close()
    assert store.jobs.get(job_id).progress_done == 20
    assert gateway.__dict__["calls"] == ["/claim", "/progress", "/renew", "/renew", "/finish"] * 2 + [
        "/renew"
    ]


def test_progress_that_a_lost_renewal_carried_is_sent_again(tmp_path: Path) -> None:
    told: list[Any] = []

    def answer(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.read())
        if request.url.path.endswith("renew"):
            told.append(body["progress"] and body["progress"]["done"])
            if len(told) == 1:
                return httpx.Response(503, json={"error": {"type": "unavailable", "message": ""}})
        return httpx.Response(200, json={"verdict": "run"})

    chosen = settings(tmp_path, gateway="http://gateway.example")
    blank: Any = {field.name: "" for field in fields(Claim)}
    held = Claim(**blank)
    with closing(Gateway(chosen, httpx.MockTransport(answer))) as gateway:
        ledger = GatewayLedger(gateway, GatewayFiles(gateway, chosen))
        ledger.progress(replace(held, token="t"), 1, None, None, {})
        ledger.progress(replace(held, token="t"), 2, None, None, {})
        with pytest.raises(GatewayAway):
            ledger.renew(replace(held, token="t"), 60.0)
        ledger.renew(replace(held, token="other"), 60.0)
        ledger.renew(replace(held, token="t"), 60.0)
        ledger.renew(replace(held, token="t"), 60.0)
    assert told == [2, None, 2, None]


def test_a_worker_that_is_about_to_meet_other_lanes_does_not_wait_long(tmp_path: Path) -> None:
    waits: list[float] = []

    def answer(request: httpx.Request) -> httpx.Response:
        waits.append(json.loads(request.read())["wait_seconds"])
        return httpx.Response(200, json={"claim": None, "standing": {}})

    chosen = settings(tmp_path, gateway="http://gateway.example")
    with closing(Gateway(chosen, httpx.MockTransport(answer))) as gateway:
        ledger = GatewayLedger(gateway, GatewayFiles(gateway, chosen))
        for changing in (False, True):
            assert ledger.claim(asked(), changing=changing) is None
    assert waits == [45.0, 5.0]


def test_a_waiting_worker_is_woken_by_a_new_job(store: Store, tmp_path: Path) -> None:
    with (
        serving(store, tmp_path / "service") as server,
        ledger_of(node_settings(tmp_path / "node", server.url, worker_key(store)), 30.0) as ledger,
    ):
        assert ledger.cordon("host:0") is None
        found: list[Any] = []
        waiting = threading.Thread(target=lambda: found.append(ledger.claim(asked())))
        waiting.start()
        job_id = submit(store, "shards=1")
        waiting.join(20)
        assert found
        assert found[0].job_id == job_id


def test_a_node_waits_once_for_shards_and_checks(store: Store, tmp_path: Path) -> None:
    with serving(store, tmp_path / "service") as server:
        chosen = node_settings(tmp_path / "node", server.url, worker_key(store))
        gateway, checking = Counted(chosen), Counted(chosen)
        files, wait, found = GatewayFiles(gateway, chosen), NodeWait(), list[Any]()
        ledger = GatewayLedger(gateway, files, 30.0, asks=wait)
        checks = GatewayLedger(checking, files, 30.0, waits=wait)
        mine, theirs = asked(device_classes=("cpu",)), asked(device_classes=(CHECKS,), worker="host:k:1:2:1")
        assert ledger.cordon("host:0") is None

        def work() -> None:
            while (held := ledger.claim(mine)) is None:
                pass
            found.append(held)

        working = threading.Thread(target=work)
        working.start()
        wait_for(lambda: wait._asks)
        upload(store, tmp_path / "service")
        held = checks.claim(theirs)
        assert held is not None
        assert held.kind == "check"
        assert checking.__dict__["calls"] == ["/claim"]
        job_id = submit(store, "shards=1")
        working.join(20)
        assert found[0].job_id == job_id
        assert wait.waits(20.0) is None, "the supervisor has a shard, and asks no longer"
        gateway.close()
        checking.close()


def test_checks_that_do_not_come_cost_no_call(tmp_path: Path) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        asking.set()
        assert ends.wait(30)
        return httpx.Response(200, json={"claim": None, "standing": {"version": "v"}, "checks": False})

    asking, ends, wait = threading.Event(), threading.Event(), NodeWait()
    chosen = settings(tmp_path, gateway="http://gateway.example")
    with closing(Gateway(chosen, httpx.MockTransport(answer))) as gateway, closing(Counted(chosen)) as none:
        ledger = GatewayLedger(gateway, GatewayFiles(gateway, chosen), asks=wait)
        checks = GatewayLedger(none, GatewayFiles(none, chosen), 0.2, waits=wait)
        assert wait.waits(20.0) is None, "nothing is asked yet"
        working = threading.Thread(target=lambda: ledger.claim(asked()))
        working.start()
        assert asking.wait(20)
        assert checks.claim(asked()) is None
        ends.set()
        working.join(20)
        assert checks.claim(asked()) is None, "the next question comes soon"
        assert checks._standing == {"version": "v"}
    assert "calls" not in none.__dict__


@pytest.mark.costly
def test_outcomes_wait_on_the_node_while_the_gateway_is_away(store: Store, tmp_path: Path) -> None:
    job_id = submit(store, "shards=2 evaluate:seconds=4")  # longer than a service takes to stop
    with serving(store, tmp_path / "service") as server:
        port = server.port
        chosen = node_settings(tmp_path / "node", server.url, worker_key(store))
        gateway = Gateway(chosen)
        files = GatewayFiles(gateway, chosen)
        ledger = GatewayLedger(gateway, files, 0.5)
        supervisor = Supervisor(ledger, chosen, device_classes=("cpu", CHECKS), files=files)
        supervisor.start()
        wait_for(lambda: any(shard.kind == "evaluate" for shard in store.shards.running()))
    wait_for(lambda: list((tmp_path / "node" / "spool").glob("*.json")))
    with serving(store, tmp_path / "service", port):
        wait_for(lambda: store.jobs.ready_to_finish() == [job_id])
        supervisor.stop()
        supervisor.join(60)
    gateway.close()
    assert not supervisor.is_alive()
    assert [shard.fence for shard in store.shards.of(job_id)] == [1, 1, 1]
    assert not list((tmp_path / "node" / "spool").glob("*.json"))
