"""Shards that are computed again: who computes them, and what comes of equal and of other bits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from assay.service.contract.errors import InvalidState
from assay.service.store.fleet.fair_queue import Lane
from assay.service.store.rows import Claim, OutcomeRow
from assay.service.store.store import Store
from assay.service.store.transactions.pace import eta_seconds
from assay.service.store.transactions.release import DIFFERENT
from assay.service.store.transactions.repetition import DRAW, _incomparable
from tests.support.jobs import WORKER, add, claim, evaluate_spec, outcome, plan, states

OWN = "0123456789abcdef"
DEVICE = {"type": "cpu", "threads": 1}
SECOND = "host:boot:1:2:1"


def measurement(claim: Claim, **evidence: Any) -> OutcomeRow:
    found = outcome(claim, extra={"evidence": evidence, "provenance": {"device": DEVICE}})
    found.columns["loss"][0] = math.nan
    found.columns["zero"] = [0.0] * found.n
    return found


def repeated(
    store: Store, *counts: int, share: float = 1.0, asked: Mapping[str, Any] | None = None, **changes: Any
) -> str:
    """A job whose shards are all done, after which this share is computed again; `asked` of its execution."""
    execution = {"device": "cpu", "dtype": "float32", "batch_size": "auto", "repeat": share, **(asked or {})}
    job_id = add(store, evaluate_spec(**{"execution": execution, **changes}))
    planning = claim(store, warm_job=job_id)
    made: Any = plan(*counts, planned_by=OWN)
    stated: Any = [{"folders": ["cifar"]}] * len(counts)
    assert store.shards.finish_plan(planning, made, stated, repeat=share)
    for _ in range(sum(counts)):
        done = store.shards.finish(mine := take(store), measurement(mine))
        assert done is not None
    return job_id


def online(store: Store, *names: str) -> None:
    for name in names:
        gauges: Any = {"code": {"version": None}}
        store.workers.beat(name, "host", ["cpu"], 1, gauges, 1, "", OWN)


def met(store: Store, worker: str) -> list[Lane]:
    """The lanes of a worker that has everything."""
    return [one.lane for one in store.lanes.all() if one.stated.get("besides") != worker]


def take(store: Store, worker: str = WORKER) -> Claim:
    return claim(store, worker, identity=OWN, lanes=met(store, worker))


def tally(store: Store, job_id: str) -> Any:
    return store.jobs.get(job_id).repeated


def test_equal_bits_are_counted_and_the_job_is_done(store: Store) -> None:
    online(store, WORKER, SECOND)
    job_id = repeated(store, 2, 1, share=1.0)
    assert tally(store, job_id) == {"shards": 3, "equal": 0, "other_workers": 0, "not_compared": {}}
    assert store.jobs.get(job_id).message == "3 of 3 shards are computed again, to compare bits"
    assert [store.jobs.ready_to_finish(), states(store, job_id)] == [[], ["running"]]
    ends = []
    for _ in range(3):
        again = take(store, SECOND)
        assert (again.kind, again.repeat, again.expected_seconds) == ("evaluate", True, 2.5)
        ends.append(store.shards.finish(again, measurement(again)))
    assert [(end.evaluation_done, end.job_done) for end in ends if end is not None] == [
        (False, False),
        (False, False),
        (False, True),
    ]
    assert tally(store, job_id) == {"shards": 3, "equal": 3, "other_workers": 3, "not_compared": {}}
    assert len(store.results.outcomes(job_id, None)) == 3
    row = store.jobs.get(job_id)
    assert (row.progress_done, row.progress_total, row.cost_done) == (30, 30, 7.5)
    assert eta_seconds(row, row.created_at + 100.0) is None
    assert store.jobs.ready_to_finish() == [job_id]


def test_the_measuring_worker_gets_no_repetition_while_another_is_there(store: Store) -> None:
    online(store, WORKER, SECOND)
    job_id = repeated(store, 1)
    assert (
        store.shards.claim(WORKER, ["cpu"], lease_seconds=60, identity=OWN, lanes=met(store, WORKER)) is None
    )
    store.jobs.free_repetitions(600.0)
    assert (
        store.shards.claim(WORKER, ["cpu"], lease_seconds=60, identity=OWN, lanes=met(store, WORKER)) is None
    )
    store.jobs.free_repetitions(-1.0)
    again = take(store)
    assert store.shards.finish(again, measurement(again)) is not None
    assert tally(store, job_id)["equal"] == 1
    assert tally(store, job_id)["other_workers"] == 0


def test_a_worker_that_is_alone_repeats_its_own_shards(store: Store) -> None:
    online(store, WORKER)
    job_id = repeated(store, 1)
    again = take(store)
    assert again.repeat
    assert store.shards.finish(again, measurement(again)) is not None
    assert tally(store, job_id) == {"shards": 1, "equal": 1, "other_workers": 0, "not_compared": {}}


def test_a_repetition_waits_for_no_worker_that_has_gone(store: Store) -> None:
    online(store, WORKER, SECOND)
    job_id = repeated(store, 1)
    lost = take(store, SECOND)
    store.workers.gone(SECOND)
    store.shards.expire(dead_owners=[SECOND])
    assert store.jobs.get(job_id).message == "a shard that is to be computed again waits for a worker"
    store.jobs.free_repetitions(600.0)
    again = take(store)
    assert again.fence > lost.fence
    assert store.shards.finish(again, measurement(again)) is not None
    assert tally(store, job_id) == {"shards": 1, "equal": 1, "other_workers": 0, "not_compared": {}}


def test_a_repetition_that_fails_for_good_costs_no_measured_number(store: Store) -> None:
    online(store, WORKER, SECOND)
    job_id = repeated(store, 2)
    store.shards.fail(take(store, SECOND), "invalid_value", "the weights changed", retry=False)
    assert states(store, job_id) == ["running"]
    assert store.jobs.get(job_id).message.startswith(
        "a shard was not computed again, invalid_value: the weights"
    )
    for _ in range(3):
        store.shards.device_fault(take(store, SECOND), "ECC error")
    assert store.jobs.ready_to_finish() == [job_id]
    reasons = {"they failed with invalid_value": 1, "they failed with device_fault": 1}
    assert tally(store, job_id) == {"shards": 2, "equal": 0, "other_workers": 0, "not_compared": reasons}


def test_a_worker_that_differs_from_itself_is_named_once(store: Store) -> None:
    online(store, WORKER)
    job_id = repeated(store, 1)
    other = measurement(again := take(store))
    other.columns["loss"][3] = 7.0
    store.shards.finish(again, other)
    error = store.jobs.get(job_id).error
    assert error is not None
    assert f"worker {WORKER} has given both: its device is defective, or the job's code" in error["message"]


def test_without_a_worker_repetitions_end_and_that_is_stated(store: Store) -> None:
    online(store, WORKER)
    job_id = repeated(store, 2)
    store.workers.gone(WORKER)
    store.jobs.free_repetitions(-1.0)
    assert store.jobs.ready_to_finish() == [job_id]
    reason = "no worker was there to compute them"
    assert tally(store, job_id) == {"shards": 2, "equal": 0, "other_workers": 0, "not_compared": {reason: 2}}


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("loss", 0.1 * 3 + 2**-54, f"row 3 (example 00003), column 'loss': {0.1 * 3} and {0.1 * 3 + 2**-54}"),
        ("loss", math.nan, f"row 3 (example 00003), column 'loss': {0.1 * 3} and nan"),
        ("id", "00004", "row 3 (example 00003), column 'id': 00003 and 00004"),
    ],
)
def test_other_bits_fail_the_job_and_name_both_workers(
    store: Store, column: str, value: Any, said: str
) -> None:
    online(store, WORKER, SECOND)
    job_id = repeated(store, 1)
    other = measurement(again := take(store, SECOND))
    other.columns[column][3] = value
    other.columns["loss"][5] = 1.0
    done = store.shards.finish(again, other)
    assert done is not None
    assert not done.job_done
    error = store.jobs.get(job_id).error
    assert states(store, job_id) == ["failed"]
    assert error is not None
    assert error["type"] == DIFFERENT
    assert f"{said}; it was measured by worker {WORKER}, and again by worker {SECOND}" in error["message"]
    assert (
        store.shards.claim(SECOND, ["cpu"], lease_seconds=60, identity=OWN, lanes=met(store, SECOND)) is None
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"zero": [0.0] * 9 + [-0.0]}, "row 9 (example 00009), column 'zero': 0.0 and -0.0"),
        ({"zero": [0.0] * 9}, "column 'zero' has 10 and 9 rows"),
        ({"more": [1] * 10}, "column 'more' is there only once"),
    ],
)
def test_zero_is_not_minus_zero_and_rows_and_columns_are_compared(
    store: Store, changes: dict[str, Any], said: str
) -> None:
    online(store, WORKER)
    job_id = repeated(store, 1)
    other = measurement(again := take(store))
    other.columns.update(changes)
    store.shards.finish(again, other)
    assert states(store, job_id) == ["failed"]
    assert said in (store.jobs.get(job_id).error or {})["message"]


def test_what_an_evaluator_puts_into_its_plan_repeats_nothing(store: Store) -> None:
    online(store, WORKER, SECOND)
    execution = {"device": "cpu", "dtype": "float32", "batch_size": "auto"}
    job_id = add(store, evaluate_spec(execution=execution))
    forged: Any = plan(1, planned_by=OWN) | {"repeat": 1e9, "stated": {"": {}}, "requirements": ["x"]}
    assert store.shards.finish_plan(claim(store, warm_job=job_id), forged)
    assert not {"repeat", "stated", "requirements"} & (store.jobs.get(job_id).plan or {}).keys()
    done = store.shards.finish(mine := take(store), measurement(mine))
    assert done is not None
    assert done.job_done


def test_a_job_with_other_bits_is_planned_again_and_not_retried(store: Store) -> None:
    online(store, WORKER, SECOND)
    job_id = repeated(store, 1)
    again = take(store, SECOND)
    other = measurement(again)
    other.columns["loss"][1] = 7.0
    store.shards.finish(again, other)
    with pytest.raises(InvalidState, match="plan the job again"):
        store.jobs.retry(job_id)
    store.jobs.replan(job_id)
    assert (states(store, job_id), tally(store, job_id)) == (["queued"], None)


def test_a_crash_is_no_difference(store: Store) -> None:
    online(store, WORKER, SECOND)
    job_id = repeated(store, 1)
    store.shards.fail(take(store, SECOND), "evaluator_died", "it died", retry=True)
    assert states(store, job_id) == ["running"]
    again = take(store, SECOND)
    store.shards.finish(again, measurement(again))
    assert tally(store, job_id)["equal"] == 1


@pytest.mark.parametrize(
    ("device", "evidence", "reason"),
    [
        ({**DEVICE, "threads": 2}, {}, "on another device, or with other arithmetic"),
        (DEVICE, {"reduced_batch": {"asked": 8, "used": 4}}, "in smaller batches, as memory was short"),
        (DEVICE, {"captured": {"replays": 8, "refused": None}}, "with captured passes in one of them"),
        (
            DEVICE,
            {"compiled": {"passes": 8, "compiler": "gcc version 12.2.0", "refused": None}},
            "with compiled passes in one of them, or from another compiler",
        ),
    ],
)
def test_what_may_differ_and_be_right_is_not_compared(
    store: Store, device: Any, evidence: Any, reason: str
) -> None:
    online(store, WORKER, SECOND)
    job_id = repeated(store, 1, asked={"capture": True, "compile": "on"})
    again = take(store, SECOND)
    other = outcome(again, extra={"evidence": evidence, "provenance": {"device": device}})
    assert other.columns["loss"][0] == 0.0  # the first outcome has NaN there
    done = store.shards.finish(again, other)
    assert done is not None
    assert done.job_done
    assert tally(store, job_id)["not_compared"] == {reason: 1}
    assert tally(store, job_id)["equal"] == 0


@pytest.mark.parametrize("kind", ["captured", "compiled"])
def test_a_worker_cannot_plead_what_the_job_did_not_ask_for(store: Store, kind: str) -> None:
    online(store, WORKER, SECOND)
    job_id = repeated(store, 1)
    again = take(store, SECOND)
    said = {kind: {"replays": 8, "passes": 8, "compiler": "g++", "refused": None}}
    store.shards.finish(again, outcome(again, extra={"evidence": said, "provenance": {"device": DEVICE}}))
    assert states(store, job_id) == ["failed"]


def test_why_passes_were_not_compiled_does_not_matter() -> None:
    found = [
        {
            "provenance": {"device": DEVICE},
            "evidence": {"compiled": {"passes": 0, "compiler": None, "refused": why}},
        }
        for why in ("no compiler", "/tmp/other: no room")
    ]
    asked: Any = {"compile": "on"}
    assert _incomparable(*found, asked) is None  # type: ignore[arg-type]


def test_a_share_that_is_asked_for_is_at_least_one_shard(store: Store) -> None:
    online(store, WORKER)
    for count, share, drawn in ((3, 0.01, 1), (5, 0.5, 3)):
        job_id = repeated(store, count, share=share)
        assert tally(store, job_id)["shards"] == drawn
        store.jobs.cancel(job_id)
    assert tally(store, repeated(store, 2, share=0.0)) is None


def test_the_share_of_the_service_is_right_on_average(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    online(store, WORKER)
    execution = {"device": "cpu", "dtype": "float32", "batch_size": "auto"}
    drawn = iter([0.89, 0.91])
    monkeypatch.setattr(DRAW, "random", lambda: next(drawn))
    assert tally(store, repeated(store, 5, share=0.02, execution=execution)) is None
    assert tally(store, repeated(store, 5, share=0.02, execution=execution))["shards"] == 1


@pytest.mark.costly
def test_any_shard_may_be_drawn_but_measurements_of_the_machine(store: Store) -> None:
    online(store, WORKER)
    found: Counter[str] = Counter()
    for _ in range(40):
        job_id = repeated(store, 4, share=0.01)
        found.update(row.id.removeprefix(job_id) for row in store.shards.of(job_id) if row.kind == "repeat")
        store.jobs.cancel(job_id)
    assert set(found) == {f"-0-{number}-again" for number in range(4)}
    job_id = add(store, evaluate_spec())
    made: Any = plan(1, planned_by=OWN)
    made["evaluations"][0]["repeats"] = 10
    assert store.shards.finish_plan(claim(store, warm_job=job_id), made, repeat=1.0)
    done = store.shards.finish(mine := take(store), measurement(mine))
    assert done is not None
    assert done.job_done


def test_an_outcome_after_a_cancel_is_repeated_when_the_job_goes_on(store: Store) -> None:
    online(store, WORKER)
    execution = {"device": "cpu", "dtype": "float32", "batch_size": "auto", "repeat": 1.0}
    job_id = add(store, evaluate_spec(execution=execution))
    assert store.shards.finish_plan(claim(store, warm_job=job_id), plan(1, planned_by=OWN), repeat=1.0)  # type: ignore[arg-type]
    mine = take(store)
    store.jobs.cancel(job_id)
    store.shards.finish(mine, measurement(mine))
    assert (states(store, job_id), tally(store, job_id)) == (["canceled"], None)
    store.jobs.retry(job_id)
    assert tally(store, job_id)["shards"] == 1
    again = take(store)
    assert again.repeat
    done = store.shards.finish(again, measurement(again))
    assert done is not None
    assert done.job_done


def test_repetitions_survive_cancel_and_retry(store: Store) -> None:
    online(store, WORKER)
    job_id = repeated(store, 2)
    store.jobs.cancel(job_id)
    store.jobs.retry(job_id)
    for _ in range(2):
        again = take(store)
        store.shards.finish(again, measurement(again))
    assert tally(store, job_id)["equal"] == 2
