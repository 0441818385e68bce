"""The remaining time of simulated jobs whose evaluations take other than the planned seconds."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

import pytest

from assay.service.contract.states import JobState
from assay.service.store.transactions.pace import (
    MIN_SHARE,
    QUARTER,
    SHORT,
    begun_pace,
    cost_share,
    eta_seconds,
    new_pace,
    paced,
)

STEP = 0.5  # seconds between two reports


@dataclass(frozen=True)
class Row:
    state: JobState
    paced_at: float | None
    paced_from: float
    cost_done: float
    cost_total: float | None
    pace: dict[str, Any] | None


# Planned cost, and the seconds that a unit of it really takes: clean examples wait for files, an attack stops
# at its first success, a search by queries has no backward pass.
UNEQUAL = [(2.0, 6.0), (40.0, 0.8), (90.0, 1.1), (60.0, 0.9)]
EARLY = [(5.0, 2.0), (150.0, 0.35), (100.0, 0.4)]
TINY_FIRST = [(0.1, 90.0), (0.2, 60.0), (8.0, 6.0), (90.0, 0.4)]
SLOW_FIRST = [(30.0, 4.0), (60.0, 1.0), (60.0, 1.2)]


def simulated(
    evaluations: list[tuple[float, float]],
    workers: int,
    shards: int = 24,
    guess: float | None = 1.0,
    *,
    at_once: bool = False,
) -> list[tuple[float, Row]]:
    """Time and row at every report of a job whose shards are claimed in order by so many workers.

    `at_once`: a shard is a batch, which has little to report in the middle, and the rest at its end.
    """
    cost = [(number, total / shards) for number, (total, _) in enumerate(evaluations) for _ in range(shards)]
    whole = sum(total for total, _ in evaluations)
    row = Row(JobState.RUNNING, 0.0, 0.0, 0.0, whole, begun_pace(new_pace(cost, guess and guess * whole)))
    queue, running, rows, time = list(cost), [], [], 0.0
    while queue or running:
        while queue and len(running) < workers:
            running.append(queue.pop(0))
        time += STEP
        still = []
        for number, left in running:
            work = min(left, STEP / evaluations[number][1])
            told = work
            if at_once:
                shard = evaluations[number][0] / shards
                ends, begins = left - work <= 1e-9, left - work < shard / 2 <= left
                told = shard * (0.98 if ends else 0.02 if begins else 0.0)
            assert row.pace is not None
            pace = paced(row.pace, number, told, STEP, time, 0.0)
            row = replace(row, cost_done=row.cost_done + told, pace=pace)
            still += [(number, left - work)] if left - work > 1e-9 else []
        running = still
        rows.append((time, row))
    return rows


def worst(rows: list[tuple[float, Row]], share: float, *, by_evaluation: bool = True) -> float:
    """The error of the eta at a share of the time, relative to what was really left."""
    end = rows[-1][0]
    time, row = min(rows, key=lambda one: abs(one[0] - share * end))
    found = eta_seconds(row if by_evaluation else replace(row, pace=None), time)
    assert found is not None
    return abs(found - (end - time)) / (end - time)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize(
    ("evaluations", "share"),
    [
        *((UNEQUAL, share) for share in (0.2, 0.5, 0.8)),
        *((EARLY, share) for share in (0.3, 0.5, 0.8)),
        # Before half of it, nothing says that what follows is four times as fast.
        *((SLOW_FIRST, share) for share in (0.5, 0.8)),
    ],
)
def test_the_eta_is_within_a_quarter(
    evaluations: list[tuple[float, float]], workers: int, share: float
) -> None:
    assert worst(simulated(evaluations, workers), share) < 0.25


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("evaluations", [UNEQUAL, EARLY, SLOW_FIRST, TINY_FIRST])
def test_the_eta_never_jumps(evaluations: list[tuple[float, float]], workers: int) -> None:
    rows = simulated(evaluations, workers, at_once=True)
    told = [(row.pace["at"], eta_seconds(row, time)) for time, row in rows if row.pace]
    known = [(at, eta) for at, eta in told if eta is not None]
    assert len(known) > len(rows) / 5
    for (before, first), (after, second) in itertools.pairwise(known):
        assert second <= first + (after - before) + 0.2, (before, first, second)


def test_the_eta_is_unknown_until_something_is_measured() -> None:
    rows = simulated([(100.0, 1.0)] * 10, 1)
    known = [row for time, row in rows if eta_seconds(row, time) is not None]
    assert cost_share(known[0]) == pytest.approx(QUARTER / 10, rel=0.1)
    assert QUARTER / 10 > MIN_SHARE
    # A minute is enough of a job of any length.
    pace = paced(new_pace([(0, 1e6)], 2e6), 0, 40.0, 80.0, 80.0, 0.0)
    assert eta_seconds(Row(JobState.RUNNING, 0.0, 0.0, 40.0, 1e6, pace), 80.0) == pytest.approx(2e6, rel=0.01)


def test_nothing_is_said_of_the_first_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    def said() -> set[bool]:
        rows = [(time, row) for time, row in simulated([(1.0, 1.0)] * 20, 1) if time < SHORT]
        return {eta_seconds(row, time) is not None for time, row in rows}

    assert said() == {False}
    monkeypatch.setattr("assay.service.store.transactions.pace.SHORT", 0.5)
    assert said() == {False, True}


@pytest.mark.parametrize("workers", [1, 3])
def test_what_is_said_is_within_a_factor_of_two_as_in_a_first_run(workers: int) -> None:
    # Cheap attacks at the planned speed, then a strong attack at four radii that breaks most examples early.
    rows = simulated([(1.0, 1.0)] * 13 + [(22.0, 0.2), (22.0, 0.1), (22.0, 0.1), (22.0, 0.15)], workers)
    end = rows[-1][0]
    said = [(eta, end - time) for time, row in rows if (eta := eta_seconds(row, time)) is not None]
    assert len(said) > len(rows) / 5
    assert [one for one in said if not one[1] / 2 - 2 < one[0] < 2 * one[1] + 2] == []


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize(
    "evaluations",
    [
        [(10.0, 1.0)] * 10 + [(50.0, 1.0), (41.0, 1.0)],
        [(10.0, 1.0)] * 13 + [(60.0, 6.0), (60.0, 6.0)],
    ],
)
def test_a_time_that_was_told_stays_told_and_near(
    evaluations: list[tuple[float, float]], workers: int
) -> None:
    rows = simulated(evaluations, workers)
    end = rows[-1][0]
    etas = [(eta_seconds(row, time), end - time) for time, row in rows]
    first = next(place for place, (eta, _) in enumerate(etas) if eta is not None)
    told = [(eta, left) for eta, left in etas[first:] if left > 1]
    assert [left for eta, left in told if eta is None] == []
    assert [one for one in told if not one[1] / 2 - 2 < one[0] < 2 * one[1] + 2] == []


def test_the_mean_speed_of_the_whole_was_far_off() -> None:
    rows = simulated(SLOW_FIRST, 1)
    assert worst(rows, 0.5, by_evaluation=False) > 0.5


def test_what_an_earlier_attempt_took_is_no_speed_of_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.service.store.transactions.pace.SHORT", 0.5)
    rows = simulated(UNEQUAL, 1)
    time, row = rows[len(rows) // 2]
    assert row.pace is not None
    again = replace(row, paced_at=1000.0, paced_from=row.cost_done, pace=begun_pace(row.pace))
    assert eta_seconds(again, 1001.0) is None
    pace = paced(again.pace or {}, 3, 1.0, 0.9, 1000.9, 1000.0)
    found = eta_seconds(replace(again, cost_done=again.cost_done + 1, pace=pace), 1001.0)
    assert found == pytest.approx(rows[-1][0] - time - 0.9, rel=0.25)


def test_reports_that_are_ahead_shorten_it() -> None:
    _, row = simulated(UNEQUAL, 1)[60]
    ahead = replace(row, cost_done=row.cost_done + 20)
    first, second = eta_seconds(row, 60.0), eta_seconds(ahead, 60.0)
    assert first is not None
    assert second is not None
    assert second < first


def test_lost_work_takes_its_seconds_along() -> None:
    pace = paced(paced(new_pace([(0, 10.0)], None), 0, 4.0, 8.0, 8.0, 0.0), 0, -2.0, 5.0, 13.0, 0.0)
    assert pace["evaluations"] == {"0": [10.0, 2.0, 4.0]}
    assert paced(pace, 0, -2.0, 1.0, 14.0, 0.0)["evaluations"] == {"0": [10.0, 0.0, 0.0]}


def test_a_share_is_of_the_planned_cost() -> None:
    _, row = simulated(UNEQUAL, 1)[-1]
    assert cost_share(row) == pytest.approx(1.0)
    assert cost_share(replace(row, cost_total=None)) is None


def test_the_estimate_does_not_climb_while_progress_stands_still() -> None:
    pace = paced(new_pace([(0, 10.0), (1, 10.0)], None), 0, 10.0, 10.0, 10.0, 0.0)
    pace = still = paced(pace, 1, 2.0, 4.0, 14.0, 0.0)
    for time in range(15, 25):
        pace = paced(pace, 1, 0.0, 1.0, float(time), 0.0)
        assert (pace["evaluations"], pace["at"]) == (still["evaluations"], still["at"])
    # The time is counted once there is progress.
    pace = paced(pace, 1, 1.0, 1.0, 25.0, 0.0)
    assert pace["evaluations"]["1"] == [10.0, 3.0, 15.0]
    assert pace["at"] == 25.0
    assert paced(pace, 1, 1.0, 1.0, 26.0, 0.0)["evaluations"]["1"] == [10.0, 4.0, 16.0]
