"""Redis in front of the database: its additions, and that its loss only costs freshness."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import redis

from assay.service.store.live import Live
from assay.service.store.rows import Claim, JobRow, ProgressSnapshot, RunningShard
from assay.service.store.store import Store, open_store
from assay.service.store.transactions.progress import with_reports
from tests.support.jobs import claim, planned
from tests.support.servers import PrivateRedis

FOR_EVER = 3600.0
Held = tuple[Claim, JobRow]


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateRedis]:
    with PrivateRedis() as started:
        yield started


@pytest.fixture
def client(server: PrivateRedis) -> Iterator[redis.Redis]:
    """A look into the server, which is empty at the start of each test."""
    with redis.Redis.from_url(server.url) as opened:
        opened.flushall()
        yield opened


@pytest.fixture
def live(server: PrivateRedis, client: redis.Redis) -> Iterator[Live]:
    opened = Live(server.url, away_seconds=0)
    yield opened
    opened.close()


@pytest.fixture
def patient(server: PrivateRedis, client: redis.Redis) -> Iterator[Live]:
    """Never retries a server after one missing answer."""
    opened = Live(server.url, away_seconds=FOR_EVER)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def held(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    """A claim with its job; the database contents do not matter to most tests."""
    copy = tmp_path_factory.mktemp("live") / "assay.sqlite"
    shutil.copy(sqlite_template, copy)
    with open_store(f"sqlite:///{copy}", migrate=False) as store:
        job_id = planned(store, 2)
        yield claim(store), store.jobs.get(job_id)


def running(claimed: Claim, **changes: int) -> RunningShard:
    values = {"done": 0, "total": 10, "cost": 2.5, "fence": claimed.fence, **changes}
    return RunningShard(id=claimed.shard_id, kind="evaluate", **values)


def test_without_a_server_every_call_answers_at_once(held: Held) -> None:
    live, (mine, job) = Live(""), held
    live.cancel(job)
    assert not live.used
    assert not live.canceled(mine)
    assert not live.report(mine, 3)
    assert live.done([running(mine)]) == [None]
    live.close()


def test_a_hint_is_for_one_attempt_of_one_job(held: Held, live: Live) -> None:
    mine, job = held
    live.cancel(replace(job, id="another"))
    live.cancel(replace(job, attempt=job.attempt + 1))
    assert not live.canceled(mine)
    live.cancel(job)
    assert live.canceled(mine)


def test_reports_are_kept_for_each_claim(held: Held, live: Live) -> None:
    mine, _ = held
    assert live.report(mine, 3)
    assert live.report(mine, 4)
    assert live.report(replace(mine, fence=mine.fence - 1), 9)
    asked = [running(mine), running(mine, fence=mine.fence + 1), running(replace(mine, shard_id="other"))]
    assert live.done(asked) == [4, None, None]
    assert live.done([]) == []


def test_all_that_is_written_is_ours_and_expires(held: Held, live: Live, client: redis.Redis) -> None:
    mine, job = held
    live.report(mine, 1)
    live.cancel(job)
    keys = client.keys()
    assert len(keys) == 2
    for key in keys:
        assert key.startswith(b"assay:")
        assert 0 < client.ttl(key) <= 60


@pytest.mark.parametrize("value", ["", "x", "-3", "1e9", "٣"])
def test_a_value_that_is_no_number_counts_nothing(
    held: Held, live: Live, client: redis.Redis, value: str
) -> None:
    mine, _ = held
    client.set(f"assay:progress:{mine.shard_id}:{mine.fence}", value)
    assert live.done([running(mine)]) == [None]


def test_an_emptied_server_knows_nothing_and_takes_the_next_report(
    held: Held, live: Live, client: redis.Redis
) -> None:
    mine, job = held
    live.report(mine, 3)
    live.cancel(job)
    client.flushall()
    assert live.done([running(mine)]) == [None]
    assert not live.canceled(mine)
    assert live.report(mine, 4)
    assert live.done([running(mine)]) == [4]


@pytest.mark.costly
@pytest.mark.parametrize("how", ["stopped", "frozen"])
def test_a_server_that_does_not_answer_is_as_good_as_empty_and_used_again_when_back(
    held: Held, live: Live, server: PrivateRedis, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    mine, job = held
    assert live.report(mine, 3)
    caplog.set_level(logging.INFO, logger="assay.service.store.live")
    server.stop() if how == "stopped" else server.freeze()
    for _ in range(2):
        live.cancel(job)
        assert not live.canceled(mine)
        assert not live.report(mine, 4)
        assert live.done([running(mine)]) == [None]
    server.start() if how == "stopped" else server.thaw()
    assert live.report(mine, 5)
    assert live.done([running(mine)]) == [5], "no late answer to an earlier question"
    told = [record.message.partition(":")[0] for record in caplog.records]
    assert told == ["Redis is away, the database answers instead", "Redis is back"]


@pytest.mark.parametrize("how", ["stopped", "frozen"])
def test_a_server_that_did_not_answer_is_left_alone_for_a_while(
    held: Held, patient: Live, server: PrivateRedis, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    mine, _ = held
    server.stop() if how == "stopped" else server.freeze()
    assert not patient.report(mine, 3)
    server.start() if how == "stopped" else server.thaw()
    assert not patient.report(mine, 3), "it is not even asked"
    now = patient._away_until
    assert now is not None
    monkeypatch.setattr("assay.service.store.live.time.monotonic", lambda: now)
    assert patient.report(mine, 3)
    monkeypatch.setattr("assay.service.store.live.time.monotonic", lambda: now - 1)
    assert patient.report(mine, 4), "and then it is trusted again"


def test_while_it_is_away_one_call_at_a_time_tries(patient: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    patient._away(OSError("for the test"))
    due = patient._away_until
    assert due is not None
    monkeypatch.setattr("assay.service.store.live.time.monotonic", lambda: due)
    assert [patient._may_ask() for _ in range(3)] == [True, False, False]


def test_a_restart_between_two_calls_is_not_noticed(held: Held, patient: Live, server: PrivateRedis) -> None:
    mine, _ = held
    assert patient.report(mine, 3)
    server.kill()
    server.start()
    assert patient.report(mine, 4)


def test_a_server_that_refuses_us_is_away_and_its_password_is_not_told(
    held: Held, caplog: pytest.LogCaptureFixture
) -> None:
    mine, _ = held
    with PrivateRedis(password="the-right-password") as guarded:
        for url in (guarded.url.replace("right", "wrong"), guarded.url.replace(":the-right-password@", "")):
            live = Live(url)
            assert not live.report(mine, 3)
            live.close()
        live = Live(guarded.url)
        assert live.report(mine, 3)
        live.close()
    assert len(caplog.records) == 2
    assert "the-" not in caplog.text


def test_a_server_without_memory_left_is_away(held: Held, live: Live, client: redis.Redis) -> None:
    mine, _ = held
    client.config_set("maxmemory", 1)
    assert not live.report(mine, 3)
    client.config_set("maxmemory", 0)
    assert live.report(mine, 3)


def snapshot(store: Store, job_id: str) -> ProgressSnapshot:
    found = store.shards.progress_snapshot(job_id)
    assert found is not None
    return found


def test_a_shard_that_ended_after_the_job_was_read_counts_once(store: Store, live: Live) -> None:
    """Its row is newer than the job's: the sum must neither fall back nor have it twice."""
    job_id = planned(store, 2)
    mine = claim(store)
    store.shards.progress(mine, 4, 10)
    live.report(mine, 9)
    job, before = store.jobs.get(job_id), snapshot(store, job_id)
    store.shards.progress(mine, 10, 10)
    after = snapshot(store, job_id)
    assert with_reports(job, before, live.done(before.running)).progress_done == 9
    assert with_reports(job, after, live.done(after.running)).progress_done == 10


def test_a_lost_shards_stale_report_counts_nothing(store: Store, live: Live) -> None:
    job_id = planned(store, 1)
    stale = claim(store, lease_seconds=-1)
    live.report(stale, 9)
    assert store.shards.expire() == 1
    claim(store, "next")
    live.report(stale, 10)
    found = snapshot(store, job_id)
    assert live.done(found.running) == [None]
    assert with_reports(store.jobs.get(job_id), found, [None]).progress_done == 0
