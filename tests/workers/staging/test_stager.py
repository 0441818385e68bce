"""A worker that stages brings what waiting shards need, and says how far it is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.service.contract.fleet.worker_records import Requirements
from assay.service.files.data_store import DataStore
from assay.service.store.fleet.fair_queue import Lane
from assay.service.store.fleet.lanes import OpenLane
from assay.service.store.store import Store
from assay.service.submission.requirements import PlanningDevice, digest_of
from assay.workers.settings import WorkerSettings
from assay.workers.staging.pulled import publish_weights
from assay.workers.staging.scratch import Scratch
from assay.workers.staging.stager import Stager
from assay.workers.supervision import inventory
from assay.workers.supervision.inventory import Inventory
from tests.support.gateways import node_settings, serving, worker_key
from tests.support.pulled import pull_tensors
from tests.support.workers import settings, wait_for
from tests.workers.staging.conftest import FILES, Publish, contents


@pytest.fixture(params=["direct", "gateway"])
def chosen(
    request: pytest.FixtureRequest, data_store: DataStore, store: Store, tmp_path: Path
) -> Iterator[WorkerSettings]:
    """A worker that stages, over either ledger."""
    (tmp_path / "node").mkdir()
    facts: dict[str, Any] = {"data_root": tmp_path / "node", "stage": True}
    if request.param == "direct":
        yield settings(tmp_path / "state", data_store=data_store.root, **facts)
        return
    with serving(store, tmp_path / "service", data_store=data_store.root) as server:
        yield node_settings(tmp_path / "state", server.url, worker_key(store, "alice"), **facts)


@contextmanager
def staging(
    chosen: WorkerSettings, *inventories: Inventory, ring: Callable[[], None] = lambda: None
) -> Iterator[Stager]:
    stager = Stager(chosen, inventories, look_seconds=0.01, ring=ring)
    stager.start()
    try:
        yield stager
    finally:
        stager.stop()
        stager.join(60)
        assert not stager.is_alive()


def judged(stock: Inventory, *folders: str, device: str = "cpu") -> str | None:
    return reason(stock, {"folders": [*folders]}, device)


def reason(stock: Inventory, asks: Requirements, device: str = "cpu") -> str | None:
    digest = digest_of(asks)
    stock.judge([OpenLane(Lane(device, "", digest), asks)], PlanningDevice())
    return stock.lacks.get(digest)


def test_what_waits_is_staged(chosen: WorkerSettings, published: Publish) -> None:
    one, stock = published(tenants=("alice",)), Inventory(chosen)
    assert judged(stock, "birds") == "it stages 'birds': it begins"
    assert "staged" not in stock.gauges
    with staging(chosen, stock):
        wait_for(lambda: judged(stock, "birds") is None)
    assert chosen.data_root is not None
    assert contents(chosen.data_root / "birds") == FILES
    assert stock.gauges["staged"] == {"birds": one.sha256}
    assert stock.staging["birds"] == "3.0 of 3.0 MB"


def test_weights_that_wait_are_staged(
    chosen: WorkerSettings, data_store: DataStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inventory, "PULLED_SECONDS", 0.0)
    made = pull_tensors(tmp_path / "pulled", "timm:net.a1", {"x": torch.ones(3)})
    publish_weights(tmp_path / "pulled", "timm:net.a1", data_store, state=tmp_path / "s", tenants=["alice"])
    chosen = chosen.model_copy(update={"weights_root": tmp_path / "node-weights"})
    stock, asks = Inventory(chosen), Requirements(weights={"timm:net.a1": made.sha256})
    assert reason(stock, asks) == "it stages the weights timm:net.a1: it begins"
    assert (stock.wanted, stock.is_staging) == ({"timm:net.a1"}, True)
    with staging(chosen, stock):
        wait_for(lambda: reason(stock, asks) is None)
    assert not stock.is_staging
    assert stock.gauges["weights"] == {"timm:net.a1": made.record}
    with stock.using([], asks["weights"]) as gone:
        assert not Scratch(chosen.weights_root).remove("timm/net.a1"), "a job reads them"
        assert gone == []
    assert Scratch(chosen.weights_root).remove("timm/net.a1")
    with stock.using([], asks["weights"]) as gone:
        assert gone == ["timm:net.a1"], "since this worker said that it has them"


def test_weights_that_nobody_publishes_are_said_to_be_missing(chosen: WorkerSettings, tmp_path: Path) -> None:
    chosen = chosen.model_copy(update={"weights_root": tmp_path / "node-weights"})
    stock, asks = Inventory(chosen), Requirements(weights={"hf:a/b": ""})
    assert reason(stock, asks) == "it stages the weights hf:a/b: it begins"
    with staging(chosen, stock):
        wait_for(lambda: reason(stock, asks) == "it lacks the weights hf:a/b; there: assay pull hf:a/b")
        assert not stock.is_staging


def test_what_nobody_publishes_is_said_to_be_missing(chosen: WorkerSettings, published: Publish) -> None:
    published("secret", tenants=("bob",))
    name = "secret" if chosen.gateway else "none"
    stock = Inventory(chosen)
    judged(stock, name)
    with staging(chosen, stock):
        wait_for(lambda: str(judged(stock, name)).startswith(f"it has no folder {name!r}"))


def test_what_is_published_while_a_job_waits_is_staged_without_a_pause(
    chosen: WorkerSettings, published: Publish
) -> None:
    stock, rung = Inventory(chosen), threading.Event()
    stock.hear("1")
    judged(stock, "birds")
    with staging(chosen, stock, ring=rung.set):
        wait_for(lambda: str(judged(stock, "birds")).startswith("it has no folder 'birds'"))
        published(tenants=("alice",))
        assert (stock.is_staging, rung.is_set()) == (False, False)
        stock.hear("2")
        assert stock.is_staging, "at once, so that this worker asks again soon"
        wait_for(lambda: judged(stock, "birds") is None)
        assert rung.wait(60), "or its supervisor would rest"


def test_a_publication_during_a_look_is_not_overlooked(
    chosen: WorkerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    stock, looks = Inventory(chosen), list[str]()

    def look(self: Stager, name: str) -> None:
        looks.append(stock.published)
        stock.hear("published meanwhile")

    monkeypatch.setattr(Stager, "_staged", look)
    judged(stock, "birds")
    with staging(chosen, stock):
        wait_for(lambda: len(looks) == 2)
        wait_for(lambda: stock.unstaged == {"birds"})
    assert looks == ["", "published meanwhile"]


def test_settings_without_staging_start_no_stager(tmp_path: Path) -> None:
    stager = Stager(settings(tmp_path / "state", data_root=tmp_path), [])
    stager.start()
    stager.stop()
    assert not stager.is_alive()


def test_what_cannot_be_staged_is_said(data_store: DataStore, published: Publish, tmp_path: Path) -> None:
    (tmp_path / "node").mkdir()
    chosen = settings(
        tmp_path / "state",
        data_store=data_store.root,
        data_root=tmp_path / "node",
        stage=True,
        stage_bytes=10,
    )
    published()
    stock = Inventory(chosen)
    judged(stock, "birds")
    with staging(chosen, stock):
        wait_for(lambda: "it cannot now, " in str(judged(stock, "birds")))
    assert "no room for birds" in str(judged(stock, "birds"))


def test_only_what_this_worker_could_run_is_wanted(tmp_path: Path) -> None:
    stock = Inventory(settings(tmp_path / "state", data_root=tmp_path, stage=True))
    judged(stock, "birds", device="cuda")
    assert stock.wanted == set()
    judged(stock, "birds", device="auto")
    assert stock.wanted == {"birds"}
    (tmp_path / "birds").mkdir()
    judged(stock, "birds", device="auto")
    assert stock.wanted == set()


def test_a_set_that_went_since_it_was_judged_is_said(tmp_path: Path) -> None:
    (tmp_path / "birds").mkdir()
    stock = Inventory(settings(tmp_path / "state", data_root=tmp_path))
    assert judged(stock, "birds") is None
    with stock.using(["birds", "none"]) as gone:
        assert gone == []
    (tmp_path / "birds").rmdir()
    with stock.using(["birds", "none"]) as gone:
        assert gone == ["birds"]
