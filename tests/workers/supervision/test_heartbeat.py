"""Frequency of a shard's database updates, and that Redis decides nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from assay.service.contract.records import TrainingSpeed
from assay.service.store.live import Live
from assay.service.store.rows import Claim
from assay.service.store.store import Store
from assay.workers.settings import WorkerSettings
from assay.workers.supervision import heartbeat
from assay.workers.supervision.evaluator_process import Work
from assay.workers.supervision.heartbeat import ProgressDeadline, ProgressReporter, Stalled, Watch
from tests.support.servers import PrivateRedis
from tests.support.workers import ended, settings, submit, supervising, wait_for

ROUND = 1_000_000.0
SHARD = SimpleNamespace(shard_id="a shard")


@pytest.fixture(scope="module")
def redis() -> Iterator[PrivateRedis]:
    with PrivateRedis() as server:
        yield server


@pytest.fixture
def live(redis: PrivateRedis) -> Iterator[Live]:
    opened = Live(redis.url, away_seconds=0)
    yield opened
    opened.close()


class Clock:
    """Manual clock; round steps, so that sums are exact."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = ROUND
        monkeypatch.setattr(heartbeat.time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


class Heard:
    """A database and a Redis that write down who was told what, and when."""

    def __init__(self, clock: Clock, *, used: bool = True, up: bool = True) -> None:
        self.clock, self.used, self.up = clock, used, up
        self.database: list[tuple[float, int]] = []
        self.redis: list[tuple[float, int]] = []
        self.away = False
        self.speed: TrainingSpeed | None = None
        self.hint = False
        self.remote = False

    def progress(
        self,
        claim: Claim,
        done: int,
        total: int | None,
        message: str | None,
        speed: TrainingSpeed | None = None,
    ) -> None:
        self.speed = speed
        self.database.append((self.clock.now - ROUND, done))
        if self.away:
            raise OperationalError("", {}, Exception("connection refused"))

    def report(self, claim: Claim, done: int) -> bool:
        self.redis.append((self.clock.now - ROUND, done))
        return self.up

    def canceled(self, claim: Claim) -> bool:
        return self.hint

    def reports(self) -> ProgressReporter:
        return ProgressReporter(self, self, SHARD)  # type: ignore[arg-type]


def run(reports: ProgressReporter, clock: Clock, *, seconds: float, every: float) -> None:
    """An evaluator that reports its time so often."""
    begun = clock.now
    while clock.now - begun < seconds:
        reports.note({"done": int((clock.now - begun) * 4), "total": None})
        clock.now += every


def test_without_redis_every_report_is_written_at_once(clock: Clock) -> None:
    heard = Heard(clock, used=False)
    run(heard.reports(), clock, seconds=2, every=0.25)
    assert heard.database == [(i / 4, i) for i in range(8)]
    assert heard.redis == []


def test_the_speed_of_a_training_is_written_with_its_progress(clock: Clock) -> None:
    heard = Heard(clock, used=False)
    gpu = {"name": "x", "total": 80, "used": 20, "reserved": 10, "busy": 0.61}
    said: Any = {"type": "progress", "done": 1, "total": 9, "message": "", "examples_per_second": 1234.0}
    heard.reports().note({**said, "gpu": gpu})
    assert heard.speed == {"examples_per_second": 1234.0, "gpu_memory": 0.25, "gpu_busy": 0.61}
    heard.reports().note({**said, "examples_per_second": 0.0})
    assert heard.speed == {}, "nothing is measured yet"


def test_with_redis_the_database_hears_every_five_seconds(clock: Clock) -> None:
    heard = Heard(clock)
    run(heard.reports(), clock, seconds=11, every=0.25)
    assert heard.database == [(0, 0), (5, 20), (10, 40)]
    assert heard.redis[:4] == [(0.25, 1), (0.75, 3), (1.25, 5), (1.75, 7)]


def test_the_ledger_of_a_gateway_hears_every_five_seconds(clock: Clock) -> None:
    heard = Heard(clock, used=False, up=False)
    heard.remote = True
    run(heard.reports(), clock, seconds=11, every=0.25)
    assert heard.database == [(0, 0), (5, 20), (10, 40)]


def test_without_an_answer_of_redis_the_database_hears_what_redis_would_have(clock: Clock) -> None:
    heard = Heard(clock, up=False)
    run(heard.reports(), clock, seconds=2, every=0.25)
    assert heard.database == [(0, 0), (0.25, 1), (0.75, 3), (1.25, 5), (1.75, 7)]


def test_no_report_waits_for_the_next_one(clock: Clock) -> None:
    """A batch may take minutes: what was said before it must not stay behind."""
    heard = Heard(clock)
    reports = heard.reports()
    for done in range(3):
        reports.note({"done": done, "total": 9})
        reports.tick()
        clock.now += 0.25
    assert heard.redis == [(0.25, 1)]
    while clock.now < ROUND + 20:
        clock.now += 0.25
        reports.tick()
    assert heard.redis == [(0.25, 1), (1.0, 2)]
    assert heard.database == [(0, 0), (5, 2)]


def test_the_last_report_is_written(clock: Clock) -> None:
    heard = Heard(clock)
    reports = heard.reports()
    for done in (1, 2):
        reports.note({"done": done, "total": 9})
        clock.now += 1
    reports.close()
    reports.close()
    assert heard.database == [(0, 1), (2, 2)]


def test_a_database_that_is_away_is_not_asked_more_often(clock: Clock) -> None:
    heard = Heard(clock)
    heard.away = True
    run(heard.reports(), clock, seconds=11, every=0.5)
    assert [at for at, _ in heard.database] == [0, 5, 10]


def test_the_database_is_asked_every_renewal_and_at_a_hint(clock: Clock, tmp_path: Path) -> None:
    heard = Heard(clock)
    chosen = distributed(
        tmp_path, "redis://127.0.0.1:1/0", control_seconds=1, renew_seconds=20, lease_seconds=90
    )
    watch = Watch(heard, None, chosen)  # type: ignore[arg-type]
    assert (watch.seconds, chosen.renewal_seconds) == (1, 5)

    def asked(looks: int) -> list[bool]:
        answers = []
        for _ in range(looks):
            clock.now += watch.seconds
            answers.append(watch.due())
        return answers

    assert asked(6) == [False] * 4 + [True, False]
    heard.hint = True
    assert asked(2) == [True, True]
    heard.hint = False
    assert asked(5) == [False] * 4 + [True]


def distributed(state: Path, url: str, **changes: Any) -> WorkerSettings:
    """The distributed mode's settings; the store of the test stands for its PostgreSQL."""
    named = {"mode": "distributed", "redis_url": url}
    return settings(state, database_url="postgresql+psycopg://nobody@127.0.0.1/x", **named, **changes)


@pytest.mark.parametrize(
    ("mode", "changes", "renewal", "look"),
    [
        ("embedded", {}, 1, 1),
        ("embedded", {"renew_seconds": 0.5}, 0.5, 0.5),
        ("distributed", {}, 5, 1),
        ("distributed", {"renew_seconds": 2}, 2, 1),
        ("distributed", {"control_seconds": 9}, 9, 9),
        ("distributed", {"lease_seconds": 3}, 1, 1),
    ],
)
def test_a_lease_is_renewed_in_time_in_both_modes(
    tmp_path: Path, mode: str, changes: dict[str, Any], renewal: float, look: float
) -> None:
    values = {"lease_seconds": 90, "renew_seconds": 20, "control_seconds": 1} | changes
    if mode == "embedded":
        chosen = settings(tmp_path, **values)
    else:
        chosen = distributed(tmp_path, "redis://127.0.0.1:1/0", **values)
    assert chosen.renewal_seconds == renewal
    assert Watch(Live(chosen.redis), None, chosen).seconds == look  # type: ignore[arg-type]


def at_work(store: Store, job_id: str) -> bool:
    return store.jobs.get(job_id).state == "running" and bool(store.shards.running())


def test_a_hint_makes_a_cancel_quick(store: Store, tmp_path: Path, redis: PrivateRedis, live: Live) -> None:
    """Without the hint this shard would ask the database in an hour."""
    job_id = submit(store, "shards=1 evaluate:hang")
    chosen = distributed(tmp_path, redis.url, renew_seconds=3600, lease_seconds=36000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("assay.workers.settings.UNHINTED_SECONDS", 3600)
        with supervising(store, chosen):
            wait_for(lambda: at_work(store, job_id))
            live.cancel(store.jobs.cancel(job_id))
            wait_for(lambda: store.jobs.get(job_id).state == "canceled")


@pytest.mark.costly
@pytest.mark.parametrize("how", ["emptied", "stopped", "frozen"])
def test_a_cancel_whose_hint_is_lost_is_noticed_through_the_database(
    store: Store, tmp_path: Path, redis: PrivateRedis, live: Live, how: str
) -> None:
    job_id = submit(store, "shards=1 evaluate:hang")
    with supervising(store, distributed(tmp_path, redis.url, renew_seconds=0.5)):
        wait_for(lambda: at_work(store, job_id))
        {"emptied": lambda: None, "stopped": redis.stop, "frozen": redis.freeze}[how]()
        store.jobs.cancel(job_id)
        wait_for(lambda: store.jobs.get(job_id).state == "canceled")
        {"emptied": lambda: None, "stopped": redis.start, "frozen": redis.thaw}[how]()


@pytest.mark.costly
def test_a_hint_alone_cancels_nothing(store: Store, tmp_path: Path, redis: PrivateRedis, live: Live) -> None:
    job_id = submit(store, "shards=2 evaluate:seconds=0.3")
    live.cancel(store.jobs.get(job_id))
    with supervising(store, distributed(tmp_path, redis.url)):
        assert ended(store, job_id).state == "succeeded"


def test_progress_reaches_redis_and_not_the_database(
    store: Store, tmp_path: Path, redis: PrivateRedis, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "DATABASE_SECONDS", 3600)
    monkeypatch.setattr(heartbeat, "LIVE_SECONDS", 0)
    real, written = store.shards.progress, []

    def progress(claimed: Claim, done: int, *others: Any) -> None:
        written.append((claimed.kind, done))
        real(claimed, done, *others)

    monkeypatch.setattr(store.shards, "progress", progress)
    halfway = tmp_path / "halfway"
    job_id = submit(store, f"shards=1 examples=10 evaluate:until={halfway}")

    def seen() -> bool:
        snapshot = store.shards.progress_snapshot(job_id)
        assert snapshot is not None
        return any(done is not None and 0 < done < 10 for done in live.done(snapshot.running))

    with supervising(store, distributed(tmp_path, redis.url)):
        wait_for(seen)
        halfway.touch()
        assert ended(store, job_id).progress_done == 10
    assert [done for kind, done in written if kind == "evaluate"] == [0, 10], "the first and the last"


@pytest.mark.costly
@pytest.mark.parametrize("how", ["stopped", "frozen"])
def test_a_shard_without_redis_runs_to_its_end(
    store: Store, tmp_path: Path, redis: PrivateRedis, how: str
) -> None:
    job_id = submit(store, "shards=2 evaluate:seconds=0.3")
    redis.stop() if how == "stopped" else redis.freeze()
    with supervising(store, distributed(tmp_path, redis.url)):
        assert ended(store, job_id).state == "succeeded"
    redis.start() if how == "stopped" else redis.thaw()
    assert store.jobs.get(job_id).progress_done == 10


@pytest.mark.parametrize(
    ("kind", "expected", "seconds"),
    [
        ("evaluate", 0.0, 300),
        ("evaluate", 60.0, 600),
        ("evaluate", 240.0, 900),  # the nominal length of a shard, which had 2,400 s
        ("evaluate", 1000.0, 3000),
        ("plan", 0.0, 1800),
        ("train", 0.0, 1800),
    ],
)
def test_how_long_a_shard_may_go_without_progress(
    clock: Clock, kind: str, expected: float, seconds: float
) -> None:
    claim: Any = SimpleNamespace(kind=kind, expected_seconds=expected)
    # It computes all the time: else it is ended sooner.
    deadline = ProgressDeadline(claim, 300.0, 900.0, lambda: Work(clock.now, False), lambda: clock.now)
    assert deadline.seconds == seconds
    clock.now += seconds
    deadline.check()
    deadline.note({"type": "progress", "done": 0, "total": 9, "message": "pgd"})
    clock.now += seconds
    deadline.check()
    deadline.note({"type": "progress", "done": 0, "total": 9, "message": "pgd"})  # the same again
    clock.now += 1
    with pytest.raises(Stalled, match=rf"no progress for {seconds:,} s after 0 \(pgd\)"):
        deadline.check()


@pytest.mark.parametrize(
    ("stopped", "doing"), [(True, "is stopped by a signal"), (False, "computes nothing")]
)
def test_an_evaluator_that_does_nothing_is_ended_before_ten_times_what_its_plan_expects(
    clock: Clock, stopped: bool, doing: str
) -> None:
    claim: Any = SimpleNamespace(kind="evaluate", expected_seconds=3600.0)
    deadline = ProgressDeadline(claim, 300.0, 900.0, lambda: Work(7.0, stopped), lambda: clock.now)
    deadline.note({"type": "progress", "done": 4, "total": 9, "message": "pgd"})
    said = []
    for _ in range(180):
        clock.now += 5
        said.append(deadline.check())
    told = [text for text in said if text is not None]
    assert len(told) == 15, "once a minute"
    assert told[1] == (
        f"waits for its evaluator, which {doing}: no progress for 120 s after 4 (pgd);"
        " ended in 790 s without any"
    )
    clock.now += 15
    with pytest.raises(Stalled, match=f"the evaluator {doing}, and the shard made no progress for 900 s"):
        deadline.check()


def test_an_evaluator_that_computes_is_ended_after_a_quarter_of_an_hour_too(clock: Clock) -> None:
    """And its job says what it waits for; its shard was kept ten times as long as its plan expects."""
    claim: Any = SimpleNamespace(kind="evaluate", expected_seconds=240.0)
    deadline = ProgressDeadline(claim, 300.0, 900.0, lambda: Work(clock.now, False), lambda: clock.now)
    told = []
    for _ in range(90):
        clock.now += 10
        told.append(deadline.check())
    assert told[-1] == (
        "waits for its evaluator, which computes: no progress for 900 s; ended in 0 s without any"
    )
    clock.now += 10
    with pytest.raises(Stalled, match="made no progress for 900 s"):
        deadline.check()


def test_an_evaluator_that_computes_has_the_time_that_its_plan_expects(clock: Clock) -> None:
    claim: Any = SimpleNamespace(kind="evaluate", expected_seconds=1200.0)
    deadline = ProgressDeadline(
        claim, 300.0, 900.0, lambda: Work((clock.now - ROUND) / 10, False), lambda: clock.now
    )
    for _ in range(360):
        clock.now += 10
        deadline.check()
    clock.now += 10
    with pytest.raises(Stalled, match="made no progress for 3,600 s"):
        deadline.check()
