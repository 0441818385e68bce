"""Shards go to workers that meet their requirements; where none does, the reason is said."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select, update

from assay.service.contract.fleet.worker_records import Requirements
from assay.service.store.fleet.fair_queue import CHECKS, Lane
from assay.service.store.store import Store
from assay.service.store.tables import lanes, shards
from assay.service.submission.requirements import digest_of
from tests.support.jobs import WORKER, add, claim, evaluate_spec, finish_all, plan, train_spec

OWN = "0123456789abcdef"
DATA: Requirements = {"folders": ["cifar"], "data": {"cifar10": "c" * 64}}
BIG: Requirements = {"memory": 64 * 2**30}


def planned_for(store: Store, *requirements: Requirements, device: str = "cpu", **changes: Any) -> str:
    """A job with a shard of each evaluation, whose workers must meet these requirements."""
    job_id = add(store, evaluate_spec(**changes))
    planning = claim(store, warm_job=job_id)
    made: Any = plan(*(1 for _ in requirements), planned_by=OWN, device=device)
    assert store.shards.finish_plan(planning, made, requirements)
    return job_id


def lane_of(store: Store, stated: Requirements) -> Lane:
    found = {one.lane.requirements: one for one in store.lanes.all()}[digest_of(stated)]
    assert found.stated == stated
    return found.lane


def claimed(store: Store, *met: Lane, device: str = "cpu", **options: Any) -> str | None:
    found = store.shards.claim(WORKER, [device], lease_seconds=60, identity=OWN, lanes=met, **options)
    return None if found is None else found.job_id


def test_a_shard_is_only_for_workers_that_meet_its_requirements(store: Store) -> None:
    job_id = planned_for(store, DATA)
    lane = lane_of(store, DATA)
    assert lane == Lane("cpu", OWN, digest_of(DATA))
    assert claimed(store) is None
    assert claimed(store, Lane("cpu", OWN, "another")) is None
    assert claimed(store, lane, warm_job=job_id) == job_id


def test_a_lane_of_another_device_or_identity_is_no_help(store: Store) -> None:
    planned_for(store, DATA)
    digest = digest_of(DATA)
    assert claimed(store, Lane("cuda", OWN, digest), Lane("cpu", "another", digest)) is None
    lane = lane_of(store, DATA)
    assert store.shards.claim(WORKER, ["cpu"], lease_seconds=60, identity="another", lanes=[lane]) is None


def test_the_rest_of_a_job_goes_on_without_what_waits(store: Store) -> None:
    job_id = planned_for(store, {}, DATA)
    assert claimed(store) == job_id
    assert claimed(store) is None
    assert [row.state for row in store.shards.of(job_id) if row.kind == "evaluate"] == ["running", "queued"]


def test_a_lane_is_in_its_turn_among_the_others(store: Store) -> None:
    later, first = planned_for(store, {}), planned_for(store, DATA, priority=9)
    lane = lane_of(store, DATA)
    assert [claimed(store, lane), claimed(store, lane)] == [first, later]


def test_the_reaper_rings_for_every_lane(store: Store) -> None:
    planned_for(store, DATA)
    assert store.shards.claimable(["cpu"], identity=OWN)
    assert not store.shards.claimable(["cpu"], identity="another")


def test_the_first_shard_of_a_job_with_folders_asks_for_them(store: Store) -> None:
    spec = evaluate_spec() | {"data": {"name": "cifar10", "params": {"folder": "cifar"}}}
    job_id = add(store, spec)
    lane = lane_of(store, {"folders": ["cifar"]})
    assert lane == Lane("auto", "", digest_of({"folders": ["cifar"]}))
    assert claimed(store) is None
    assert claimed(store, lane) == job_id
    training = add(store, train_spec() | {"data": spec["data"]})
    assert claimed(store, lane) == training


def test_planned_again_a_job_asks_for_its_folders(store: Store) -> None:
    spec = evaluate_spec() | {"data": {"name": "cifar10", "params": {"folder": "cifar"}}}
    job_id = add(store, spec)
    lane = lane_of(store, {"folders": ["cifar"]})
    planning = store.shards.claim(WORKER, ["cpu"], lease_seconds=60, lanes=[lane])
    assert planning is not None
    assert store.shards.finish_plan(planning, plan(1, planned_by=OWN), [DATA])  # type: ignore[arg-type]
    store.jobs.replan(job_id)
    assert claimed(store) is None
    assert claimed(store, lane) == job_id


def test_no_worker_meets_what_all_of_them_lack(store: Store) -> None:
    digest = digest_of(DATA)
    assert not store.lanes.unmet("cpu", digest), "without workers none has said so"
    store.workers.beat("a", "box", ["cpu"], 1, {"lacks": {digest: "it has no folder 'cifar'"}})
    assert store.lanes.unmet("cpu", digest)
    store.workers.beat("b", "box", ["cuda", "cpu"], 2, {})
    assert not store.lanes.unmet("cpu", digest)
    assert not store.lanes.unmet("auto", digest)
    store.workers.beat("b", "box", ["cuda", "cpu"], 2, {}, devices=0)
    assert store.lanes.unmet("auto", digest), "one that takes no shards is no hope"


def test_while_a_worker_stages_the_data_the_shard_waits_for_it(store: Store) -> None:
    digest = digest_of(DATA)
    store.workers.beat("a", "box", ["cpu"], 1, {"lacks": {digest: "it has no folder 'cifar'"}})
    store.workers.beat("b", "box", ["cpu"], 2, {"lacks": {digest: "it stages 'cifar': 1 of 2 GB"}})
    assert not store.lanes.unmet("cpu", digest)
    store.workers.beat("b", "box", ["cpu"], 2, {"lacks": {digest: "it has no folder 'cifar'"}})
    assert store.lanes.unmet("cpu", digest)


def test_who_has_the_data_is_counted(store: Store) -> None:
    job_id, digest = planned_for(store, {"folders": ["cifar"]}), digest_of({"folders": ["cifar"]})
    for name, why in (
        ("a", "it has no folder 'cifar'"),
        ("b", "it has no GPU"),
        ("c", "it stages 'cifar': x"),
    ):
        store.workers.beat(name, "box", ["cpu"], 1, {"lacks": {digest: why}}, identity=OWN)
    found = store.workers.blocked(job_id, "cpu", 1, OWN)
    assert found.data == ["cifar (1 of 3 workers have it; `assay data stage cifar` on the others)"]
    stages = {digest: "it stages the weights timm:net: x"}
    store.workers.beat("d", "box", ["cpu"], 1, {"lacks": stages}, identity=OWN)
    assert store.workers.blocked(job_id, "cpu", 1, OWN).data[0].startswith("cifar (2 of 4 workers have it")
    store.workers.beat("d", "box", ["cpu"], 1, {}, identity=OWN)
    found = store.workers.blocked(job_id, "cpu", 1, OWN)
    assert (found.reasons, found.data[0][:10]) == ([], "cifar (2 o")


def test_what_is_blocked_is_said_with_the_reason(store: Store) -> None:
    job_id = planned_for(store, DATA, {}, BIG)
    lacks = {digest_of(DATA): "no folder"}
    store.workers.beat("a", "box", ["cpu"], 1, {"lacks": lacks}, identity=OWN)
    found = store.workers.blocked(job_id, "cpu", 1, OWN)
    assert (found.reasons, found.workers, found.entirely) == (["a: no folder"], 1, False)
    store.workers.beat("b", "box", ["cpu"], 2, {"lacks": {digest_of(DATA): "other content"}}, identity=OWN)
    assert store.workers.blocked(job_id, "cpu", 1, OWN).reasons == ["a: no folder; b: other content"]
    store.workers.beat("c", "box", ["cpu"], 3, {}, identity=OWN, name="box:c")
    assert store.workers.blocked(job_id, "cpu", 1, OWN).reasons == []
    store.cordons.set("box:c", drain=False, by_whom="ops")
    assert store.workers.blocked(job_id, "cpu", 1, OWN).reasons != [], "cordoned, it is no help"
    assert not store.lanes.unmet("cpu", digest_of(DATA)), "but it may come back"


def test_two_workers_of_one_name_are_two(store: Store) -> None:
    digest = digest_of(DATA)
    store.workers.beat("a", "box", ["cpu"], 1, {}, name="box:cpu0")
    store.workers.beat("b", "box", ["cpu"], 2, {"lacks": {digest: "no folder"}}, name="box:cpu0")
    assert not store.lanes.unmet("cpu", digest)


def test_a_job_that_nothing_can_go_on_with_is_blocked_entirely(store: Store) -> None:
    job_id = planned_for(store, DATA)
    assert not store.workers.blocked(job_id, "cpu", 1, OWN).entirely, "there is no worker at all"
    store.workers.beat("a", "box", ["cpu"], 1, {"lacks": {digest_of(DATA): "no folder"}}, identity=OWN)
    assert store.workers.blocked(job_id, "cpu", 1, OWN).entirely


def test_only_lanes_whose_shards_wait_or_run_are_judged(store: Store) -> None:
    job_id = planned_for(store, DATA)
    assert len(store.lanes.all()) == 1
    store.jobs.cancel(job_id)
    assert store.lanes.all() == []
    store.jobs.retry(job_id)
    assert [one.stated for one in store.lanes.all()] == [DATA], "they may be queued again"


def test_lanes_that_no_shard_can_come_back_to_are_removed_after_an_hour(store: Store) -> None:
    job_id, canceled = planned_for(store, DATA), planned_for(store, BIG)
    store.jobs.cancel(canceled)
    _age(store)
    store.lanes.prune()
    assert _digests(store) == {digest_of(DATA), digest_of(BIG)}
    finish_all(store, job_id, identity=OWN)
    store.lanes.prune()
    assert _digests(store) == {digest_of(BIG)}


def test_a_lane_that_was_just_used_stays(store: Store) -> None:
    job_id = planned_for(store, DATA)
    finish_all(store, job_id, identity=OWN)
    store.lanes.prune()
    assert _digests(store) == {digest_of(DATA)}


def test_a_program_is_checked_on_a_gpu_where_one_is_online(store: Store) -> None:
    def lane_of_check(name: str) -> str:
        model = {"name": "exported", "params": {}}
        added = store.checkpoints.add(name, model=model, sha256="a" * 64, size=7, tenant=None, place=_nowhere)
        with store.lanes._database.reading() as connection:
            wanted = select(shards.c.requirements).where(shards.c.job_id == added[0].job_id)
            return str(connection.execute(wanted).scalar_one())

    assert lane_of_check("before") == ""
    store.workers.beat("a", "box", ["cuda", "cpu"], 1, {})
    assert lane_of_check("after") == digest_of({"gpu": True})
    assert [one.lane for one in store.lanes.all()] == [Lane(CHECKS, "", digest_of({"gpu": True}))]


def _digests(store: Store) -> set[str]:
    with store.lanes._database.reading() as connection:
        return {*connection.execute(select(lanes.c.requirements)).scalars()}


def _nowhere(job_id: str) -> None:
    """Where the file would go."""


def _age(store: Store) -> None:
    with store.lanes._database.writing() as connection:
        connection.execute(update(lanes).values(used_at=lanes.c.used_at - 7200))
