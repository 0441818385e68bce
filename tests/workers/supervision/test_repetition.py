"""Workers compute shards again: another worker where another is online, else a new process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from assay.service.store.artifacts import AGAIN
from assay.service.store.store import Store
from assay.workers.settings import WorkerSettings
from assay.workers.supervision.direct_ledger import DirectLedger
from assay.workers.supervision.shard_end import REPEAT
from assay.workers.supervision.supervisor import Supervisor
from tests.support.workers import ended, settings, submit, supervising, wait_for

EXECUTION = {"device": "cpu", "dtype": "float32", "batch_size": "auto", "repeat": 1.0}


def told(state: Path, words: str = "", **changes: Any) -> WorkerSettings:
    """Settings of a worker with an evaluator that is told so."""
    plain = settings(state).evaluator_command
    return settings(state, evaluator_command=f"env FAKE_EVALUATOR={words} {plain}", **changes)


@contextmanager
def two(store: Store, state: Path, words: str = "") -> Iterator[None]:
    """Two workers that are online; the second's evaluator is told so."""
    chosen = [settings(state), told(state, words)]
    both = [
        Supervisor(DirectLedger(store, one), one, device_classes=("cpu",), number=n)
        for n, one in enumerate(chosen)
    ]
    for one in both:
        one.start()
    try:
        wait_for(lambda: store.workers.online("cpu") == 2)
        yield
    finally:
        for one in both:
            one.stop()
        for one in both:
            one.join(120)


def starts(store: Store) -> float:
    return sum(
        value
        for (name, _), value in store.overview().counters.items()
        if name == "assay_evaluator_starts_total"
    )


@pytest.mark.costly
def test_another_worker_repeats_and_the_provenance_says_so(store: Store, tmp_path: Path) -> None:
    with two(store, tmp_path):
        job = ended(store, job_id := submit(store, "shards=3", execution=EXECUTION))
    assert (job.state, job.error) == ("succeeded", None)
    assert job.provenance is not None
    assert job.provenance["repeated"] == {"shards": 3, "equal": 3, "other_workers": 3, "not_compared": {}}
    assert job.provenance["times"]["shards"] == 3
    assert len(store.results.outcomes(job_id, 0)) == 3


@pytest.mark.costly
def test_a_worker_that_measures_otherwise_is_found(store: Store, tmp_path: Path) -> None:
    with two(store, tmp_path, "evaluate:lie"):
        job = ended(store, submit(store, "shards=2 evaluate:seconds=0.5", execution=EXECUTION))
    assert job.state == "failed"
    assert job.error is not None
    assert job.error["type"] == "invalid"
    for number in range(2):
        assert f":{number}" in job.error["message"]


def test_a_worker_that_is_alone_repeats_in_a_new_process(store: Store, tmp_path: Path) -> None:
    with supervising(store, settings(tmp_path)):
        job = ended(store, submit(store, "shards=3 fill=10", execution=EXECUTION))
    assert job.provenance is not None
    assert job.provenance["repeated"] == {"shards": 3, "equal": 3, "other_workers": 0, "not_compared": {}}
    assert starts(store) == 2.0
    assert list((tmp_path / "artifacts").glob(f"{AGAIN}*")) == []


def test_an_embedded_service_repeats_nothing_unless_asked(store: Store, tmp_path: Path) -> None:
    with two(store, tmp_path):
        job = ended(store, submit(store, "shards=3"))
    assert job.provenance is not None
    assert job.provenance["repeated"] is None
    assert job.plan is not None
    assert "repeat" not in job.plan


@pytest.mark.costly
@pytest.mark.parametrize(
    ("changes", "workers", "asked", "share"),
    [
        ({"mode": "distributed"}, 2, None, REPEAT),
        ({"mode": "distributed"}, 1, None, None),
        ({"mode": "distributed"}, 2, 0.0, None),
        ({"repeat": 0.5}, 1, None, 0.5),
        ({"repeat": 0.5}, 1, 0.25, 0.25),
        ({"repeat": 0.0, "mode": "distributed"}, 2, None, None),
    ],
)
def test_the_share_is_the_jobs_the_services_or_a_hundredth(
    store: Store,
    tmp_path: Path,
    changes: Any,
    workers: int,
    asked: float | None,
    share: float | None,
) -> None:
    execution = {name: value for name, value in (EXECUTION | {"repeat": asked}).items() if value is not None}
    chosen = settings(
        tmp_path,
        database_url="postgresql+psycopg://test@127.0.0.1/test",
        redis_url="redis://127.0.0.1:6379/15",
        **changes,
    )
    with supervising(store, chosen, workers):
        wait_for(lambda: store.workers.online("cpu") == workers)
        job = ended(store, submit(store, "shards=1", execution=execution))
    assert job.plan is not None
    assert job.plan.get("repeat") == share
