"""The outbox of webhooks: written with the change, claimed once, tried again, given up, told once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import text

from assay.service.contract.errors import InvalidState, NotFound
from assay.service.store.store import Store, open_store
from assay.service.store.tenants import View
from assay.service.webhooks import outbox as module
from assay.service.webhooks.outbox import PAUSES, DueDelivery, Outbox
from assay.service.webhooks.store import Webhooks
from assay.service.webhooks.wire import WebhookRequest
from tests.support.databases import *  # noqa: F403 (fixtures)
from tests.support.databases import ALWAYS_ON_BOTH
from tests.support.jobs import add, claim, evaluate_spec, outcome, planned, train_spec


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with open_store(database_url, migrate=False) as store:
        yield store


def webhooks(store: Store, tenant: str | None = None) -> Webhooks:
    return Webhooks(store, View(tenant, everything=tenant is None))


def hook(store: Store, *events: str, tenant: str | None = None, **changes: Any) -> str:
    given = {"url": "https://example.com/", **({"events": list(events)} if events else {}), **changes}
    row, secret = webhooks(store, tenant).add(WebhookRequest.model_validate(given), most=20)
    assert secret.startswith("whsec_")
    return str(row.id)


def log(store: Store, webhook: str, tenant: str | None = None) -> list[Any]:
    rows, _ = webhooks(store, tenant).deliveries(webhook, limit=200, cursor=None)
    return list(reversed(rows))


def execute(store: Store, statement: str) -> None:
    with store._database.writing() as connection:
        connection.execute(text(statement))


def due(store: Store, most: int = 10) -> list[DueDelivery]:
    execute(store, "UPDATE webhook_deliveries SET next_at = 0 WHERE state = 'pending'")
    return list(store.part(Outbox).claim(most))


@pytest.mark.costly
def test_the_end_of_a_job_is_one_message(store: Store) -> None:
    mine = hook(store)
    job = planned(store, 1, name="ours", tags=["x"])
    shard = claim(store, warm_job=job)
    store.shards.finish(shard, outcome(shard))
    result = {"name": "a", "params": {"epsilon": "8/255"}, "metrics": {"top1": METRIC, "top5": METRIC}}
    store.results.save(job, 0, result)  # type: ignore[arg-type]
    assert store.jobs.succeed(job, PROVENANCE)
    (row,) = log(store, mine)
    assert (row.event, row.object, row.state, row.attempts) == ("job.succeeded", job, "pending", 0)
    data = row.payload["data"]
    assert (data["job"], data["name"], data["state"]) == (job, "ours", "succeeded")
    assert data["links"] == {"self": f"/api/v1/jobs/{job}", "results": f"/api/v1/jobs/{job}/results"}
    assert data["metrics"] == [{"name": "a", "epsilon": "8/255", "metrics": {"top1": SHOWN}}]


METRIC = {
    "value": 0.5,
    "n": 4,
    "ci_low": 0.1,
    "ci_high": 0.9,
    "ci_method": "wilson",
    "higher_is_better": True,
}
SHOWN = {"value": 0.5, "ci_low": 0.1, "ci_high": 0.9, "n": 4}
PROVENANCE: Any = {"spec": {}, "device": {}}


def test_of_too_many_messages_the_oldest_are_given_up_counted_and_can_be_posted(store: Store) -> None:
    mine, other = hook(store), hook(store)
    made = [webhooks(store).test(mine).id for _ in range(5)]
    for _ in range(3):
        webhooks(store).test(other)
    assert store.part(Outbox).trim(3) == {mine: 2}
    assert store.part(Outbox).trim(3) == {}
    assert [(row.id, row.state) for row in log(store, mine)] == [
        (delivery, "failed" if place < 2 else "pending") for place, delivery in enumerate(made)
    ]
    assert log(store, mine)[0].error == "more than 3 messages were waiting"
    found = webhooks(store).get(mine)
    assert (found.pending, found.dropped) == (3, 2)
    assert webhooks(store).get(other).dropped == 0
    assert webhooks(store).redeliver(mine, made[0]).state == "pending"


def test_events_are_filtered_by_name_kind_and_tag(store: Store) -> None:
    canceled = hook(store, "job.canceled")
    trainings = hook(store, "job.canceled", kinds=["train"])
    tagged = hook(store, "job.canceled", tags=["paper", "other"])
    other = hook(store, "job.failed", "evaluation.finished")
    one = add(store, evaluate_spec(tags=["paper"]))
    two = add(store, train_spec())
    for job in (one, two):
        store.jobs.cancel(job)
    assert [row.object for row in log(store, canceled)] == [one, two]
    assert [row.object for row in log(store, trainings)] == [two]
    assert [row.object for row in log(store, tagged)] == [one]
    assert log(store, other) == []


def test_a_tenant_gets_its_own_events(store: Store) -> None:
    mine, theirs, none = hook(store, tenant="a"), hook(store, tenant="b"), hook(store)
    job = store.jobs.add(evaluate_spec(), body_sha256="sha", tenant="a")[0].id
    store.jobs.cancel(job)
    assert [row.object for row in log(store, mine, "a")] == [job]
    assert log(store, theirs, "b") == log(store, none) == []
    for call in (
        lambda: webhooks(store, "b").get(mine),
        lambda: webhooks(store, "b").delete(mine),
        lambda: webhooks(store, "b").rotate(mine),
        lambda: webhooks(store, "b").enable(mine),
        lambda: webhooks(store, "b").test(mine),
        lambda: log(store, mine, "b"),
        lambda: webhooks(store, "b").redeliver(mine, log(store, mine, "a")[0].id),
        lambda: webhooks(store, "b").redeliver(theirs, log(store, mine, "a")[0].id),
        lambda: webhooks(store, "b").get("x' OR 1=1"),
    ):
        with pytest.raises(NotFound):
            call()
    assert len(webhooks(store, "a").list()) == 1


def test_a_change_that_is_rolled_back_leaves_no_message(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = hook(store)
    job = add(store, evaluate_spec())
    from assay.service.store.transactions import end_job

    def broken(*given: Any) -> None:
        raise RuntimeError("the process dies here")

    with monkeypatch.context() as patch:
        patch.setattr(end_job, "_fail_dependents", broken)
        with pytest.raises(RuntimeError):
            store.jobs.cancel(job)
    assert store.jobs.get(job).state == "queued"
    assert log(store, mine) == []


@ALWAYS_ON_BOTH
def test_a_message_is_claimed_by_one_of_many(database_url: str) -> None:
    with open_store(database_url, migrate=False) as store:
        hooks = [hook(store) for _ in range(12)]
        for one in hooks:
            webhooks(store).test(one)
        begin = threading.Barrier(4)

        def take(_: int) -> list[str]:
            with open_store(database_url, migrate=False) as own:
                begin.wait()
                return [one.id for _ in range(12) for one in own.part(Outbox).claim(2)]

        with ThreadPoolExecutor(4) as pool:
            taken = [one for some in pool.map(take, range(4)) for one in some]
        assert len(taken) == len(set(taken)) == 12


def test_what_a_dead_process_had_is_due_again(store: Store) -> None:
    mine = hook(store)
    webhooks(store).test(mine)
    (first,) = store.part(Outbox).claim(5)
    assert store.part(Outbox).claim(5) == []
    (second,) = due(store)  # as after a minute
    assert (second.id, second.attempt) == (first.id, 2)
    assert store.part(Outbox).settle(first, status=200, error=None) is None  # it was not dead: too late
    assert store.part(Outbox).settle(second, status=204, error=None) == "delivered"
    (row,) = log(store, mine)
    assert (row.state, row.status, row.next_at, row.attempts) == ("delivered", 204, None, 2)
    assert due(store) == []


def test_a_slow_webhook_does_not_hold_up_the_others(store: Store) -> None:
    slow, quick = hook(store), hook(store)
    for _ in range(5):
        webhooks(store).test(slow)
    webhooks(store).test(quick)
    assert [one.webhook_id for one in due(store)].count(slow) == 2
    assert quick in {one.webhook_id for one in due(store)} | {row.webhook_id for row in log(store, quick)}


def test_it_is_tried_for_about_a_day_and_then_given_up(store: Store) -> None:
    mine = hook(store)
    webhooks(store).test(mine)
    pauses = []
    for pause in PAUSES:
        (one,) = due(store)
        assert store.part(Outbox).settle(one, status=500, error=None) == "failed"
        (row,) = log(store, mine)
        pauses.append(row.next_at - row.last_at)
        assert 0.79 * pause < pauses[-1] < 1.21 * pause
    assert 0.79 * 86_400 < sum(pauses) < 1.21 * 86_400
    assert webhooks(store).get(mine).failing_since is not None
    (one,) = due(store)
    assert store.part(Outbox).settle(one, status=None, error="no connection") == "given_up"
    (row,) = log(store, mine)
    assert (row.state, row.status, row.error, row.next_at) == ("failed", None, "no connection", None)
    # It has not failed for a day by the clock, so it stays enabled; and a success ends the failing.
    assert webhooks(store).get(mine).disabled_reason is None
    webhooks(store).redeliver(mine, row.id)
    (again,) = due(store)
    assert (again.id, again.attempt) == (row.id, 1)
    assert store.part(Outbox).settle(again, status=200, error=None) == "delivered"
    assert webhooks(store).get(mine).failing_since is None


@pytest.mark.parametrize("status", [410, 500])
def test_one_that_fails_for_a_day_or_is_gone_is_disabled(store: Store, status: int) -> None:
    mine = hook(store)
    for _ in range(3):
        webhooks(store).test(mine)
    (one, *_) = due(store)
    if status == 500:
        execute(store, f"UPDATE webhooks SET failing_since = {0.0}")
        execute(store, f"UPDATE webhook_deliveries SET attempts = {len(PAUSES)}")
        (one, *_) = due(store)
    assert store.part(Outbox).settle(one, status=status, error=None) == "given_up"
    found = webhooks(store).get(mine)
    assert found.disabled_reason is not None
    assert found.pending == 0
    assert {row.state for row in log(store, mine)} == {"failed"}
    store.jobs.cancel(add(store, evaluate_spec()))
    assert len(log(store, mine)) == 3
    with pytest.raises(InvalidState, match="enable it first"):
        webhooks(store).test(mine)
    assert webhooks(store).enable(mine).disabled_reason is None
    webhooks(store).test(mine)
    assert len(due(store)) == 1


def test_after_a_rotation_both_secrets_sign_for_a_day(store: Store) -> None:
    mine = hook(store)
    webhooks(store).test(mine)
    (one,) = due(store)
    _, fresh = webhooks(store).rotate(mine)
    (two,) = due(store)
    assert (two.secrets, one.secrets) == ((fresh, one.secrets[0]), (one.secrets[0],))
    execute(store, "UPDATE webhooks SET old_secret_until = 0")
    (three,) = due(store)
    assert three.secrets == (fresh,)


def test_the_number_of_webhooks_is_limited(store: Store) -> None:
    request = WebhookRequest(url="https://example.com/")
    webhooks(store, "a").add(request, most=1)
    with pytest.raises(InvalidState, match="at most 1"):
        webhooks(store, "a").add(request, most=1)
    webhooks(store, "b").add(request, most=1)


def test_old_deliveries_are_forgotten(store: Store) -> None:
    mine = hook(store)
    for _ in range(2):
        webhooks(store).test(mine)
    (one, _) = due(store)
    store.part(Outbox).settle(one, status=200, error=None)
    assert store.part(Outbox).forget() == 0
    execute(store, "UPDATE webhook_deliveries SET created_at = 0")
    assert store.part(Outbox).forget() == 1
    assert [row.state for row in log(store, mine)] == ["pending"]


def test_a_webhook_that_is_removed_takes_its_deliveries_along(store: Store) -> None:
    mine = hook(store)
    webhooks(store).test(mine)
    (one,) = due(store)
    webhooks(store).delete(mine)
    assert store.part(Outbox).settle(one, status=200, error=None) is None
    assert webhooks(store).list() == []
    store.jobs.cancel(add(store, evaluate_spec()))


def test_pages_of_the_log(store: Store) -> None:
    mine = hook(store)
    made = [webhooks(store).test(mine).id for _ in range(5)]
    rows, cursor = webhooks(store).deliveries(mine, limit=3, cursor=None)
    more, end = webhooks(store).deliveries(mine, limit=3, cursor=cursor)
    assert [row.id for row in [*rows, *more]] == list(reversed(made))
    assert made == sorted(made)
    assert end is None


def test_the_reason_of_an_unknown_claim_is_kept_out_of_transactions(store: Store) -> None:
    """Posting is between two transactions: none is open while a receiver thinks."""
    mine = hook(store)
    webhooks(store).test(mine)
    due(store)
    assert store._database.engine.pool.checkedout() == 0  # type: ignore[attr-defined]
    assert module.CLAIM_SECONDS > 2 * 10
