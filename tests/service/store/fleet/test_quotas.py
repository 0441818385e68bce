"""Limits of what a tenant may queue and store, checked before anything is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, insert

from assay.service.contract.errors import InvalidState, TooLarge, TooManyRequests
from assay.service.contract.limits import UNLIMITED, Limits
from assay.service.store.clock import now
from assay.service.store.fleet.quotas import (
    NEAR,
    Quota,
    check_in_flight,
    check_queue,
    check_room,
    check_stored,
    check_submission,
    held_checkpoints,
    over_limit,
    queued_jobs,
    size_left,
    stored_bytes,
)
from assay.service.store.store import Store
from assay.service.store.tenant_tables import reservations
from tests.support.jobs import evaluate_spec, train_spec

HUGE = 2**53 - 1


def add(store: Store, tenant: str | None = "team", **changes: Any) -> str:
    return store.jobs.add(train_spec(**changes), body_sha256="sha", tenant=tenant)[0].id


def upload(store: Store, name: str, size: int, tenant: str | None = "team") -> None:
    reading = {"normalization": None, "positions": None}
    given: dict[str, Any] = {"model": {"name": "vit", "params": {}}, "reading": reading, "sha256": name}
    store.checkpoints.add(name, **given, size=size, tenant=tenant, place=lambda _: None)


def reserve(connection: Connection, upload_id: str, size: int, tenant: str = "team") -> None:
    times = {"created_at": now(), "seen_at": now()}
    row = {"id": upload_id, "tenant": tenant, "owner": "o", "size": size, **times}
    connection.execute(insert(reservations).values(**row))


@pytest.fixture
def connection(store: Store) -> Iterator[Connection]:
    with store._database.writing() as opened:
        yield opened


@pytest.fixture
def kept(store: Store) -> Store:
    """Two checkpoints of 30 and 12 bytes of a tenant, one of another, one without a tenant."""
    for name, size, tenant in (("a", 30, "team"), ("b", 12, "team"), ("c", 500, "other"), ("d", 7, None)):
        upload(store, name, size, tenant)
    return store


def test_what_is_held_is_counted_by_tenant(kept: Store, connection: Connection) -> None:
    assert held_checkpoints(connection, "team") == (2, 42)
    assert held_checkpoints(connection, None) == (1, 7)
    assert held_checkpoints(connection, "no_tenant") == (0, 0)
    assert size_left(connection, "team", Quota(9, 40)) == -2, "after the quota was lowered"


def test_one_more_checkpoint_fits_up_to_its_last_byte(kept: Store, connection: Connection) -> None:
    assert check_room(connection, "team", Quota(3, 50), 8) == 8
    with pytest.raises(TooLarge) as told:
        check_room(connection, "team", Quota(3, 50), 9)
    assert told.value.message == (
        "the file has 9 bytes; the 2 checkpoints that are kept have 42 of 50, so 8 are left: delete"
        " some first (`assay checkpoints delete`)"
    )
    with pytest.raises(TooLarge, match="42 of 40, so 0 are left"):
        check_room(connection, "team", Quota(3, 40), 1)
    assert check_room(connection, "team", Quota(3, HUGE), HUGE - 42) == HUGE - 42


def test_the_number_of_checkpoints_is_told_before_their_bytes(kept: Store, connection: Connection) -> None:
    with pytest.raises(InvalidState, match="there are 2 checkpoints, at most 2 may be kept: delete some"):
        check_room(connection, "team", Quota(2, 1), 0)


def test_uploads_in_flight_take_room_for_a_while_only(kept: Store, connection: Connection) -> None:
    quota = Quota(4, 100)
    reserve(connection, "first", 50)
    reserve(connection, "foreign", 50, "other")
    check_in_flight(connection, "team", quota, 8, [])
    with pytest.raises(TooManyRequests) as told:
        check_in_flight(connection, "team", quota, 9, [])
    assert told.value.message.startswith("1 uploads in flight have reserved the rest of the quota: wait")
    assert told.value.headers["RateLimit"] == '"checkpoint-bytes";r=8;t=10'
    check_in_flight(connection, "team", quota, 58, ["first"])
    reserve(connection, "second", 0)
    with pytest.raises(TooManyRequests, match="2 uploads in flight"):
        check_in_flight(connection, "team", quota, 0, [])


def test_queued_and_waiting_jobs_count_and_running_ones_do_not(store: Store) -> None:
    source = add(store)
    waiting = evaluate_spec(weights_from=source)
    store.jobs.add(waiting, body_sha256="sha", tenant="team")
    add(store, "other")
    add(store, None)
    with store._database.reading() as connection:
        assert [queued_jobs(connection, one) for one in ("team", "other", None, "")] == [2, 1, 1, 0]
    assert store.shards.claim("w", ["cpu"], lease_seconds=60, warm_job=source) is not None
    with store._database.reading() as connection:
        assert queued_jobs(connection, "team") == 1


def test_a_count_ends_early_and_never_below_its_limit(store: Store) -> None:
    for _ in range(5):
        add(store)
    with store._database.reading() as connection:
        assert queued_jobs(connection, "team", 3) == 3
        assert queued_jobs(connection, "team", 9) == 5


@pytest.mark.parametrize("most", [2, 2 + NEAR, 0])
def test_a_queue_is_full_at_its_limit(store: Store, most: int) -> None:
    """Far from its limit a queue is counted without a lock, near it with one."""
    for _ in range(2):
        add(store)
    with store._database.writing() as connection:
        if most != 2:
            check_queue(connection, "team", Limits(queued_jobs=most))
            return
        check_queue(connection, "other", Limits(queued_jobs=most))
        with pytest.raises(TooManyRequests) as told:
            check_queue(connection, "team", Limits(queued_jobs=most))
    assert told.value.message == (
        "2 jobs are queued, at most 2 may be: wait until some have started (limit queued_jobs; see"
        " `assay quota`)"
    )
    assert told.value.headers["Retry-After"] == "30"


def test_stored_bytes_are_checkpoints_and_files_that_have_not_expired(kept: Store) -> None:
    job_id = add(kept)
    kept.artifacts.add(job_id, "weights.safetensors", "p", 100, "s", "m")
    kept.artifacts.add(add(kept, "other"), "log", "p", 9, "s", "m")
    with kept._database.reading() as connection:
        assert stored_bytes(connection, "team") == 142
        assert stored_bytes(connection, None) == 7
    kept.jobs.cancel(job_id)
    assert kept.artifacts.expire([job_id], keep_seconds=-1).expired == {job_id}
    with kept._database.reading() as connection:
        assert stored_bytes(connection, "team") == 42


@pytest.mark.parametrize(
    ("limit", "more", "refused"), [(50, 8, False), (50, 9, True), (42, 0, True), (0, 99, False)]
)
def test_stored_bytes_have_a_limit(
    kept: Store, connection: Connection, limit: int, more: int, refused: bool
) -> None:
    limits = Limits(stored_bytes=limit)
    if not refused:
        check_stored(connection, "team", limits, more)
        return
    with pytest.raises(
        TooManyRequests, match=f"42 bytes of checkpoints and artifacts .* at most {limit} may"
    ):
        check_stored(connection, "team", limits, more)


def test_a_submission_is_refused_for_what_is_stored(kept: Store, connection: Connection) -> None:
    check_submission(connection, "team", UNLIMITED)
    check_submission(connection, "team", Limits(stored_bytes=43))
    with pytest.raises(TooManyRequests, match="limit stored_bytes"):
        check_submission(connection, "team", Limits(stored_bytes=42))


def test_the_headers_of_a_limit_are_of_the_draft() -> None:
    """draft-ietf-httpapi-ratelimit-headers: quoted names without underscores, never less than 0 left."""
    error = over_limit("queued_jobs", "text", 5, 9, 30, "requests")
    assert error.status == 429
    assert error.headers == {
        "Retry-After": "30",
        "RateLimit-Policy": '"queued-jobs";q=5;qu="requests"',
        "RateLimit": '"queued-jobs";r=0;t=30',
    }
