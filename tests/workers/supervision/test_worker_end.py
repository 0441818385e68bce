"""When a worker ends by itself."""

from __future__ import annotations

import time

import pytest

from assay.workers.supervision.worker_end import ENDING_SECONDS, WorkerEnd


def test_without_limits_it_never_ends() -> None:
    end = WorkerEnd()
    assert end.seconds_left() is None
    assert end.reason(1e9) is None


def test_it_ends_after_a_time_without_work() -> None:
    end = WorkerEnd(idle_seconds=300)
    assert (end.reason(299.9), end.seconds_left()) == (None, None)
    assert end.reason(300.0) == "no work for 300 s"


def test_a_cordoned_worker_ends_once_it_has_no_shard_if_it_ends_without_work() -> None:
    end = WorkerEnd(idle_seconds=300)
    assert end.reason(0.0, cordoned=True) is None
    assert end.reason(0.1, cordoned=True) == "it is cordoned, and has no shard"
    assert WorkerEnd(max_seconds=1000).reason(0.1, cordoned=True) is None


def test_its_end_and_the_evaluators_grace_are_kept_free() -> None:
    end = WorkerEnd(max_seconds=1000, grace_seconds=8, begun=time.monotonic() - 500)
    assert end.seconds_left() == pytest.approx(1000 - 500 - 8 - ENDING_SECONDS, abs=0.5)
    assert end.reason(0.0) is None
    over = WorkerEnd(max_seconds=1000, grace_seconds=8, begun=time.monotonic() - 1000 + 8 + ENDING_SECONDS)
    assert over.reason(0.0) == "its 1000 s are over"
