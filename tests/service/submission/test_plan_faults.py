"""A plan of a stranger: sums, ranges and numbers that no worker makes are refused with their places."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.contract.errors import InvalidSpec
from assay.service.submission.plan_faults import MAX_EXAMPLES, MAX_SHARDS, check_plan
from tests.support.jobs import evaluate_spec

CLEAN = {"name": "clean"}
SHARDS = [
    {"evaluation": 0, "number": 0, "start": 0, "stop": 5, "cost": 1.0},
    {"evaluation": 0, "number": 1, "start": 5, "stop": 10, "cost": 1.0},
    {"evaluation": 1, "number": 0, "start": 0, "stop": 4, "cost": 0.0},
]
SIZES = [{"n": 10, "available": 10}, {"n": 4, "available": 10}]
PLAN = {
    "device": "cpu",
    "batch_size": 5,
    "untrained": False,
    "weights_sha256": "w",
    "data_sha256": {"digits": "d"},
    "evaluations": SIZES,
    "shards": SHARDS,
}
NAN, INFINITE = float("nan"), float("inf")


def spec(**changes: Any) -> Any:
    return evaluate_spec(**changes) | {"evaluations": [CLEAN, CLEAN]}


def refused(changes: dict[str, Any], requirements: Any = (), given: Any = None) -> str:
    plan: Any = PLAN | changes
    with pytest.raises(InvalidSpec) as caught:
        check_plan(plan, requirements, given or spec())
    return "; ".join(f"{one.loc[-1]}: {one.message}" for one in caught.value.details)


def with_shard(index: int, **changes: Any) -> dict[str, Any]:
    return {"shards": [{**one, **changes} if place == index else one for place, one in enumerate(SHARDS)]}


@pytest.mark.parametrize("requirements", [[], [{}, {"folders": ["imagenet"]}]])
def test_a_plan_as_workers_make_it_passes(requirements: Any) -> None:
    plan: Any = PLAN | {"estimated_seconds": 3.5, "forward_flops": 1e9}
    check_plan(plan, requirements, spec())


def test_an_evaluation_without_examples_needs_no_shard() -> None:
    plan: Any = PLAN | {"evaluations": [SIZES[0], {"n": 0, "available": 0}], "shards": SHARDS[:2]}
    check_plan(plan, [], spec())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (with_shard(0, cost=NAN), "cost: nan; allowed: finite numbers from 0"),
        (with_shard(0, cost=-1.0), "cost: -1.0; allowed"),
        (with_shard(0, number=1), "have not each a number of their own"),
        (with_shard(0, number=MAX_SHARDS), "have not each a number of their own"),
        (with_shard(0, start=-5), "evaluations[0]: its shards do not follow each other"),
        (with_shard(1, start=4), "evaluations[0]: its shards do not follow each other"),
        (with_shard(1, stop=5), "evaluations[0]: its shards do not follow each other"),
        (with_shard(1, start=6), "evaluations[0]: its shards do not follow each other"),
        (with_shard(1, stop=9), "evaluations[0]: its shards have 9 examples, the evaluation 10"),
        (with_shard(2, evaluation=2), "shards: a shard is of no evaluation of the job"),
        (with_shard(2, evaluation=-1), "evaluations[1]: its shards have 0 examples, the evaluation 4"),
        ({"shards": []}, "evaluations[0]: its shards have 0 examples, the evaluation 10"),
        ({"shards": SHARDS * (MAX_SHARDS // 3 + 1)}, "shards: 100,002; allowed: 100,000"),
        ({"evaluations": SIZES[:1]}, "it plans 1 evaluations, the job has 2"),
        ({"evaluations": [SIZES[0], {"n": MAX_EXAMPLES, "available": 1}]}, "of more examples than"),
        ({"evaluations": [SIZES[0], {**SIZES[1], "n": -1}]}, "n: -1; allowed: 0 or more"),
        ({"estimated_seconds": NAN}, "estimated_seconds: nan; allowed: finite numbers"),
        ({"estimated_seconds": -1.0}, "estimated_seconds: -1.0; allowed: finite numbers"),
        ({"forward_flops": INFINITE}, "forward_flops: inf; allowed: finite numbers"),
        ({"sources": {"a": {"b": [0.5, INFINITE]}}}, "sources.a.b[1]: inf; allowed: finite numbers"),
        ({"device": "tpu"}, "device: 'tpu', where the job asks for auto"),
    ],
)
def test_a_plan_that_no_worker_makes_is_refused_with_its_place(changes: dict[str, Any], said: str) -> None:
    assert said in refused(changes)


def test_shards_of_a_plan_without_an_estimate_have_bounded_seconds_together() -> None:
    shards = [{**one, "cost": 9e8} for one in SHARDS]
    assert "shards: of 2.7e+09 s; allowed: at most 1e+09 s" in refused({"shards": shards})


def test_requirements_are_of_each_evaluation_or_of_none() -> None:
    assert refused({}, [{}]) == "requirements: requirements: of 1 evaluations, the job has 2"


def test_all_faults_are_told_at_once() -> None:
    told = refused({**with_shard(0, cost=NAN), "device": "tpu", "batch_size": 0}, [{}])
    assert all(one in told for one in ("cost: nan", "device: 'tpu'", "batch_size: 0", "of 1 evaluations"))


def test_a_plan_is_of_the_device_that_its_job_asks_for() -> None:
    assert "device: 'cpu', where the job asks for cuda" in refused({}, given=spec(device="cuda"))
