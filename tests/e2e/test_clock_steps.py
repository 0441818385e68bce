"""The clocks of services and workers are set an hour ahead and back while jobs run.

A file says how far `time.time` of each process of the service is off; the database keeps its own clock, as on
a machine of its own. Its clock is set in `tests/workers/supervision/test_reaper.py` and in `make chaos`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from assay.service.store.store import open_store
from tests.e2e.jobs import attacking, finished, outcomes, pgd, training, weights
from tests.e2e.running import SHARDED, RunningService, wait_for

Start = Callable[..., RunningService]
HOUR = 3600.0
CLOCK = """
import os, time
_right, _file = time.time, os.environ.get("TESTS_CLOCK", "")
def _now():
    try:
        with open(_file) as file:
            return _right() + float(file.read() or 0)
    except (OSError, ValueError):
        return _right()
time.time = _now
"""


class Clock:
    """The clock of the processes that have this environment."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        (folder / "site").mkdir()
        (folder / "site" / "sitecustomize.py").write_text(CLOCK)
        self.environment = {"PYTHONPATH": str(folder / "site"), "TESTS_CLOCK": str(self._file)}

    def set(self, seconds: float) -> None:
        """Sets it off by so many seconds."""
        temporary = self._file.with_suffix(".new")
        temporary.write_text(str(seconds))
        temporary.replace(self._file)


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    return Clock(tmp_path)


@pytest.fixture
def service(make_service: Start, clock: Clock, tmp_path: Path) -> Iterator[RunningService]:
    own = {"ASSAY_WORKERS": "2", "ASSAY_CHECKPOINT_SECONDS": "0.3", **clock.environment}
    running = make_service(tmp_path / "state", **own, **SHARDED)
    yield running.start()
    running.close()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_steps_of_the_processes_clocks_cost_no_shard_and_change_no_bit(
    service: RunningService, clock: Clock, tmp_path: Path
) -> None:
    client = service.client
    attacks = [pgd("4/255", steps=100), pgd("8/255", steps=100)]

    def run(steps: list[float]) -> tuple[str | None, dict[str, str]]:
        """Trains and attacks within ten minutes, and sets the clock on the way."""
        trained = client.submit(training(epochs=20, timeout_seconds=600)).id
        wait_for(lambda: client.job(trained).progress.done > 40, 180)
        clock.set(steps[0])
        finished(client, trained)
        attacked = client.submit(attacking(trained, attacks, timeout_seconds=600)).id
        for done, step in zip((50, 200, 400), steps[1:], strict=True):
            wait_for(lambda done=done: client.job(attacked).progress.done > done, 180)  # type: ignore[misc]
            eta = client.job(attacked).progress.eta_seconds
            assert eta is None or eta < HOUR, eta
            clock.set(step)
        for job_id in (trained, attacked):
            assert finished(client, job_id).attempt == 1
        with open_store(service.database, migrate=False) as store:
            rows = [row for job_id in (trained, attacked) for row in store.shards.of(job_id)]
        assert {(row.failures, row.losses) for row in rows} == {(0, 0)}
        return weights(client, trained), outcomes(client, attacked, tmp_path / attacked)

    calm = run([0.0, 0.0, 0.0, 0.0])
    assert run([HOUR, -HOUR, HOUR, 0.0]) == calm
