"""Faults of the storm, one by one, against processes and clusters that are none."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import cast

import pytest

from assay.service.client import AssayClient
from assay.service.store import shards
from assay.service.store.fleet import lease_owner
from assay.service.store.store import Store
from assay.service.store.transactions import claim as claims
from assay.workers.supervision.health import SELF_TEST_SECONDS
from tests.e2e.running import wait_for
from tests.storm import faults as storm_faults
from tests.storm import lies, surroundings
from tests.storm.cluster import Cluster, Program
from tests.storm.disguise import Lie, measure_only, present, version_of
from tests.storm.faults import OVER_GATEWAY, Faults
from tests.storm.lies import LIES
from tests.storm.surroundings import SURROUNDINGS
from tests.support.jobs import claim, planned
from tests.support.workers import submit


class Silent:
    """A cluster whose liars got a shard, and of which nothing is said."""

    def __init__(self, folder: Path) -> None:
        self.logs = folder
        self.removed: list[Program] = []
        self.apis: list[Program] = []
        self.running: list[int] = []
        self.stall_seconds, self.version = 2.0, ""

    def revive(self) -> None:
        """Nothing is dead."""

    def evaluators(self) -> list[int]:
        """The processes of evaluators."""
        return self.running

    def add_liar(self, lie: Lie) -> Program:
        """A box that has claimed."""
        (self.logs / f"{lie}.log").write_text("shard x (evaluate): claimed, fence 1")
        return Program(lie, "", present(), {})

    def remove(self, box: Program) -> None:
        """Its end."""
        self.removed.append(box)

    def clients(self) -> list[AssayClient]:
        """None of any API process."""
        return []


def test_a_lie_that_nothing_names_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lies, "NAMED_SECONDS", 0.0)
    cluster = Silent(tmp_path)
    faults = Faults(cast(Cluster, cluster), 1, {"programs exchanged": LIES["programs exchanged"]})
    faults.strike()
    assert faults.problems == ["programs exchanged: nothing has named it within 0 s"]
    assert (faults.done["programs exchanged"], faults.named, faults.left) == (1, {}, [])
    assert len(cluster.removed) == 1


def test_other_code_waits_for_a_job_that_others_have_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No job would name what it waits for, and the boxes would stand still for minutes."""
    monkeypatch.setattr(lies, "START_SECONDS", 0.0)
    cluster = Silent(tmp_path)
    faults = Faults(cast(Cluster, cluster), 1, {"other code": LIES["other code"]})
    monkeypatch.setattr(faults.evidence, "online", lambda digest: 1)
    monkeypatch.setattr(faults.evidence, "outdated", lambda digest: set())
    faults.strike()
    assert (faults.problems, faults.left, len(cluster.removed)) == ([], ["other code"], 1)


def test_a_kind_that_finds_nothing_to_hit_strikes_again() -> None:
    hits = iter([False, False, True, True])
    faults = Faults(cast(Cluster, Silent(Path())), 1, {"late": (lambda _: next(hits), 1.0)})
    for left in (["late"], ["late"], [], []):
        faults.strike()
        assert faults.left == left
    assert faults.done["late"] == 2


def test_the_clock_is_set_only_under_the_eye_of_a_reaper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who begins to lead while the clock is wrong cannot know it, and would end every job with a deadline."""
    me = lease_owner.worker_id(0)
    gone = ":".join([*me.split(":")[:2], "999999999", "1", "0"])
    faults = Faults(cast(Cluster, Silent(Path())), 1, {"clock steps": SURROUNDINGS["clock steps"]})
    told = iter(["", f"{gone} 1.0", f"{gone} 2.0", f"{me} 3.0", f"{me} 3.0", f"{me} 4.0", f"{me} 4.0"])
    monkeypatch.setattr(faults.evidence, "_one", lambda *_: next(told))
    assert [faults.evidence.watches_clock() for _ in range(6)] == [False] * 5 + [True]
    monkeypatch.setattr(surroundings, "START_SECONDS", 0.0)
    monkeypatch.setattr(surroundings.clock, "set_ahead", None)
    faults.strike()
    assert (faults.problems, faults.left) == (["no reaper has had its duty within 0 s"], ["clock steps"])


def test_a_gateway_is_frozen_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storm_faults, "LEASE_SECONDS", 0.2)
    with subprocess.Popen(["sleep", "60"]) as process:
        cluster = Silent(Path())
        cluster.apis = [Program("api-0", "", present(), {}, process)]
        kinds = {"gateways frozen": OVER_GATEWAY["gateways frozen"]}
        faults = Faults(cast(Cluster, cluster), 1, kinds)
        status = Path(f"/proc/{process.pid}/status")
        faults.strike()
        wait_for(lambda: "T (stopped)" in status.read_text(), 20)
        faults.end()
        wait_for(lambda: "T (stopped)" not in status.read_text(), 20)
        process.kill()
    cluster.apis[0].process = None
    faults.strike()
    assert faults.done["gateways frozen"] == 1


def test_an_evaluator_that_is_stopped_in_its_self_test_has_the_time_of_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(lies, "wait_until", lambda look, seconds: waits.append(seconds) or True)
    with subprocess.Popen(["sleep", "60"]) as process:
        cluster = Silent(tmp_path)
        cluster.running = [process.pid]
        faults = Faults(cast(Cluster, cluster), 1, {"evaluators stopped": LIES["evaluators stopped"]})
        faults.strike()
        process.kill()
    assert waits[0] > SELF_TEST_SECONDS
    assert (faults.problems, faults.left) == ([], ["evaluators stopped"])


def test_liars_at_a_gateway_claim_only_what_is_planned(
    either_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service claims for its nodes: it knows liars by the tenant of their key."""
    for module, name in ((shards, "candidate"), (claims, "lanes_of")):
        monkeypatch.setattr(module, name, getattr(module, name))
    measure_only("liars:")
    mine, liar = version_of("")["digest"], "liars:here:kernel:1:2:0"
    submit(either_store, "")
    with pytest.raises(AssertionError, match="nothing to claim"):
        claim(either_store, liar, identity=mine)
    assert claim(either_store, "nodes:here:kernel:1:2:0", identity=mine).kind == "plan"
    planned(either_store, 1, planned_by=mine)
    assert claim(either_store, liar, identity=mine).kind == "evaluate"
