"""The metrics parse by Prometheus' own rules, are right, and come while the database is away."""

from __future__ import annotations

import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics
from sqlalchemy.exc import OperationalError

from assay.service.api import metrics
from assay.service.settings import Settings
from assay.service.store.fleet.workers import CounterKey
from assay.service.store.live import redis_answers
from assay.service.store.store import Store
from supply.site import metrics_page
from tests.support.servers import PrivateRedis

Sample = dict[tuple[str, frozenset[tuple[str, str]]], float]
GPU = {"name": "NVIDIA H200", "total": 150_000_000_000, "used": 5_000_000_000, "reserved": 4_000_000_000}


@pytest.fixture(autouse=True)
def always_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "FRESH_SECONDS", -1.0)


def scraped(api: httpx.Client) -> Sample:
    answer = api.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    found: Sample = {}
    for family in parser.text_string_to_metric_families(answer.text):
        assert family.documentation, family.name
        assert family.type in {"gauge", "counter", "histogram"}, family.name
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, f"{key} twice"
            found[key] = sample.value
    return found


def value(found: Sample, name: str, **labels: str) -> float | None:
    return found.get((name, frozenset(labels.items())))


def test_an_idle_service_has_its_metrics(api: httpx.Client) -> None:
    found = scraped(api)
    assert value(found, "assay_database_up") == 1
    assert value(found, "assay_event_streams") == 0
    assert value(found, "assay_jobs", state="queued") == 0
    assert value(found, "assay_shards", device="cuda", state="queued") == 0
    assert value(found, "assay_workers_online", device="auto") == 0
    assert value(found, "assay_state_free_bytes")
    assert value(found, "process_resident_memory_bytes")
    assert any(name == "assay_info" for name, _ in found)
    assert not [name for name, _ in found if name.endswith("_created")]
    assert value(found, "assay_redis_up") is None, "the embedded mode has none"


def test_openmetrics_is_served_to_who_asks(api: httpx.Client, app_store: Store) -> None:
    app_store.counters.add({("assay_shard_losses_total", ()): 2})
    api.get("/healthz")
    answer = api.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    families = {family.name for family in openmetrics.text_string_to_metric_families(answer.text)}
    assert {"assay_shard_losses", "assay_http_request_seconds", "assay_jobs"} <= families


def test_jobs_and_shards_are_counted(api: httpx.Client, worker: Any, train_body: Any) -> None:
    ids = [api.post("/api/v1/jobs", json=train_body()).json()["id"] for _ in range(3)]
    worker.train(ids[0])
    worker.fail(ids[1])
    found = scraped(api)
    states = {"succeeded": 1, "failed": 1, "queued": 1, "running": 0}
    assert {state: value(found, "assay_jobs", state=state) for state in states} == states
    assert value(found, "assay_shards", device="auto", state="queued") == 1
    assert 0 <= (value(found, "assay_queue_oldest_seconds") or 0) < 60


def test_workers_and_their_gpus_are_shown(api: httpx.Client, app_store: Store) -> None:
    app_store.workers.beat("a", "box", ["cuda", "cpu"], 1, {"gpu": GPU})
    app_store.workers.beat("b", "box", ["cpu"], 2)
    found = scraped(api)
    online = [value(found, "assay_workers_online", device=device) for device in ("auto", "cpu", "cuda")]
    assert online == [2, 2, 1]
    place = {"host": "box", "worker": "a", "gpu": "NVIDIA H200"}
    for which in ("used", "reserved", "total"):
        assert value(found, f"assay_gpu_memory_{which}_bytes", **place) == GPU[which]


def test_workers_out_of_service_are_shown(api: httpx.Client, app_store: Store) -> None:
    app_store.workers.beat("a", "box", ["cpu"], 1, {"unfit": {"cuda": "no driver"}}, 1, name="box:0")
    app_store.workers.beat("b", "box", ["cuda"], 2, {"cordoned": "lost"}, 0, name="box:1")
    said = "the data set cifar10 has the content 12 on this worker, 34 in the plan"
    app_store.workers.beat("c", "box", ["cpu"], 3, {"other_data": [said]}, 1, name="box:2")
    app_store.cordons.set("box:2", drain=True, by_whom="ops")
    app_store.workers.beat("d", "box", ["cpu"], 4, {}, 1, name="box:3", identity="d4" * 8)
    app_store.identities.rule("d4" * 8, "withdrawn", "ops")
    text = api.get("/metrics").text
    assert 'assay_workers_online{device="auto"} 1.0' in text
    assert 'assay_workers_out_of_service{by="administrator"} 1.0' in text
    assert 'assay_workers_out_of_service{by="identity"} 1.0' in text
    assert 'assay_workers_out_of_service{by="worker"} 1.0' in text
    assert 'assay_worker_unfit{device="cuda",host="box",worker="a"} 1.0' in text
    assert f'assay_worker_other_data{{data="{said}",host="box",worker="c"}} 1.0' in text


@pytest.mark.parametrize("gpu", [5, [], {}, {"name": None, "used": "much"}, {"total": None}])
def test_a_wrong_report_of_an_evaluator_hides_nothing_else(
    api: httpx.Client, app_store: Store, gpu: Any
) -> None:
    app_store.workers.beat("a", 'b\n"ox', ["cpu"], 1, {"gpu": gpu})
    found = scraped(api)
    assert value(found, "assay_workers_online", device="cpu") == 1
    assert not [name for name, _ in found if name.startswith("assay_gpu")]


def test_what_workers_count_is_shown(api: httpx.Client, app_store: Store) -> None:
    device, train = (("device", "cpu"),), (("device", "cpu"), ("kind", "train"))

    def bucket(le: str) -> CounterKey:
        return "assay_shard_seconds_bucket", (("device", "cpu"), ("kind", "train"), ("le", le))

    app_store.counters.add(
        {
            ("assay_examples_total", device): 100,
            ("assay_shard_failures_total", (("error", "out_of_memory"), ("kind", "train"))): 1,
            ("assay_shard_seconds_sum", train): 90_100.5,
            bucket("2"): 3,
            bucket("60"): 2,
            bucket("+Inf"): 1,
            ("of_another_version_total", ()): 1,
            ("assay_shard_seconds_sum", ()): 1,
            ("assay_shard_seconds_bucket", train): 1,
            ("assay_examples_total", ()): 1,
        }
    )
    found = scraped(api)
    assert value(found, "assay_examples_total", device="cpu") == 100
    assert value(found, "assay_shard_failures_total", error="out_of_memory", kind="train") == 1
    series = {le: value(found, "assay_shard_seconds_bucket", le=le, device="cpu", kind="train")
              for le in ("1", "2", "30", "60", "86400", "+Inf")}  # fmt: skip
    assert series == {"1": 0, "2": 3, "30": 3, "60": 5, "86400": 5, "+Inf": 6}
    assert value(found, "assay_shard_seconds_count", device="cpu", kind="train") == 6
    assert value(found, "assay_shard_seconds_sum", device="cpu", kind="train") == 90_100.5


def test_requests_are_shown_by_route(api: httpx.Client) -> None:
    for _ in range(3):
        api.get("/api/v1/jobs")
    api.get("/nowhere/at/all")
    found = scraped(api)
    route = {"route": "/api/v1/jobs", "method": "GET"}
    assert value(found, "assay_http_requests_total", status="200", **route) == 3
    assert value(found, "assay_http_requests_total", status="404", route="other", method="GET") == 1
    assert value(found, "assay_http_request_seconds_count", **route) == 3
    assert value(found, "assay_http_request_seconds_bucket", le="+Inf", **route) == 3


def test_open_streams_are_counted(api: httpx.Client, transport: Any) -> None:
    feed = transport.app.state.feed

    async def follow() -> Any:
        return feed.subscribe("01m7yq0tygpbr98qrkbw31n8h6", 0)

    async def leave(subscription: Any) -> None:
        feed.unsubscribe(subscription)

    subscription = transport.do(follow())
    assert value(scraped(api), "assay_event_streams") == 1
    transport.do(leave(subscription))
    assert value(scraped(api), "assay_event_streams") == 0


def test_a_database_that_is_away_is_a_metric(
    api: httpx.Client, app_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> None:
        raise OperationalError("SELECT 1", {}, sqlite3.OperationalError("database is locked"))

    api.get("/healthz")
    monkeypatch.setattr(app_store, "overview", away)
    found = scraped(api)
    assert value(found, "assay_database_up") == 0
    assert value(found, "assay_http_requests_total", route="/healthz", method="GET", status="200") == 1
    assert value(found, "assay_jobs", state="queued") is None
    monkeypatch.undo()
    monkeypatch.setattr(metrics, "FRESH_SECONDS", -1.0)
    assert value(scraped(api), "assay_database_up") == 1


def test_a_database_that_was_never_there_is_a_metric(serve: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "assay.sqlite").mkdir()
    with serve(Settings(state=tmp_path)) as api:
        assert value(scraped(api), "assay_database_up") == 0


@pytest.fixture
def hanging() -> Iterator[tuple[metrics.Watch, threading.Event, list[float]]]:
    """A watch on a database that does not answer before the event is set; and when it was asked."""
    answer, asked = threading.Event(), []

    def open_store() -> Any:
        asked.append(time.monotonic())
        assert answer.wait(30)
        raise OperationalError("", {}, Exception("timeout"))

    watch = metrics.Watch(open_store, patience=0.05)
    yield watch, answer, asked
    answer.set()
    watch.close()


def test_a_database_that_hangs_is_not_waited_for(
    hanging: tuple[metrics.Watch, threading.Event, list[float]],
) -> None:
    watch, _, asked = hanging
    assert [watch.look() for _ in range(3)] == [None] * 3
    assert len(asked) == 1, "never asked again while an answer is missing"


def test_who_asks_within_two_seconds_gets_the_same(app_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "FRESH_SECONDS", 3600.0)
    watch = metrics.Watch(lambda: app_store)
    first = watch.look()
    assert first is not None
    assert watch.look() is first
    monkeypatch.setattr(metrics, "FRESH_SECONDS", -1.0)
    monkeypatch.setattr(metrics, "MAX_SHARE", 1e9)
    second = watch.look()
    assert second is not first
    monkeypatch.setattr(metrics, "MAX_SHARE", 1e-9)
    assert watch.look() is second, "it took long, and is kept longer"
    watch.close()


def test_redis_is_watched_in_distributed_mode(
    serve: Callable[..., Any], app_store: Store, tmp_path: Path
) -> None:
    with PrivateRedis() as server:
        settings = Settings(
            mode="distributed",
            state=tmp_path,
            database_url="postgresql+psycopg://assay@127.0.0.1/assay",
            redis_url=server.url,
        )
        with serve(settings, app_store) as api:
            assert api.get("/metrics").status_code == 401
            api.headers["Authorization"] = f"Bearer {app_store.keys.create('prometheus', ['read'])[1]}"
            assert value(scraped(api), "assay_redis_up") == 1
            server.stop()
            assert value(scraped(api), "assay_redis_up") == 0
    assert not redis_answers("redis://127.0.0.1:1/0")


def test_pages_name_metrics_that_are_there(api: httpx.Client, app_store: Store) -> None:
    app_store.workers.beat("a", "box", ["cuda"], 1, {"gpu": GPU})
    families = parser.text_string_to_metric_families(api.get("/metrics").text)
    shown = {f"{one.name}_total" if one.type == "counter" else one.name for one in families}
    shown.remove("assay_info")
    page = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "metrics.md").read_text()
    blocks = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]
    rules = [rule for block in blocks for group in block.get("groups", []) for rule in group["rules"]]
    assert len(rules) > 5
    for rule in rules:
        used = re.findall(r"assay_[a-z_]+", rule["expr"])
        assert used, rule
        assert {"assay_redis_up", *shown} >= set(used), rule
    reference = metrics_page.page()
    unnamed = [name for name in shown if name.startswith("assay") and f"| `{name}` |" not in reference]
    assert not unnamed
    assert "| `assay_redis_up` | gauge |" in reference
    assert "| `assay_tenant_queued_jobs` | gauge |" in reference
