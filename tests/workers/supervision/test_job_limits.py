"""A plan over the limits fails its job before it measures; a training is judged by its pace."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from assay.service.store.store import Store
from assay.service.submission.limits import JobLimits
from assay.workers.supervision import job_limits
from assay.workers.supervision.job_limits import OverLimit, TooManyFiles, TrainingLimits, check_files
from tests.support.workers import ended, settings, submit, submit_training, supervising, wait_for

LIMITS = JobLimits({"cpu": 1000.0, "cuda": 10_000.0}, 5000)


class Training:
    """Reports steps at a steady pace."""

    def __init__(self, device: str = "cpu", limits: JobLimits = LIMITS) -> None:
        self.now, self.deadlines = 0.0, list[float]()
        self.limits = TrainingLimits(limits, device, self.deadlines.append, clock=lambda: self.now)

    def step(self, at: float, done: int, total: int = 1000) -> None:
        self.now = at
        self.limits.note({"type": "progress", "done": done, "total": total, "message": ""})


def test_a_training_gets_the_widest_deadline_first_and_then_that_of_its_pace() -> None:
    training = Training()
    training.step(0, 5)
    assert training.deadlines == [10_000.0]
    training.step(59, 100)
    training.step(61, 8)  # too few steps to tell
    assert len(training.deadlines) == 1
    training.step(95, 195)
    assert training.deadlines[1:] == [pytest.approx(10 * 0.5 * 805)]
    training.step(200, 196)
    assert len(training.deadlines) == 2


def test_a_training_whose_pace_makes_it_too_long_is_over_the_limit() -> None:
    training = Training()
    training.step(0, 0)
    with pytest.raises(OverLimit, match=r"estimated 2e\+03 s .*2 s a step over 50 steps.*at most 1000 s"):
        training.step(100, 50)
    roomy = Training("auto")
    roomy.step(0, 0)
    roomy.step(100, 50)
    assert roomy.deadlines == [100_000.0, pytest.approx(10 * 2 * 950)]


def test_a_training_with_more_steps_than_examples_allowed_ends_at_its_first_report() -> None:
    with pytest.raises(OverLimit, match="ASSAY_MAX_EXAMPLES"):
        Training().step(0, 0, total=5001)


def test_without_limits_a_training_gets_the_deadline_of_its_pace_alone() -> None:
    training = Training(limits=JobLimits({"cpu": None, "cuda": None}, None))
    training.step(0, 0, 10**9)
    training.step(100, 100, 10**9)
    assert training.deadlines == [pytest.approx(10 * (1e9 - 100))]


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"max_examples": 9}, "10 examples"),
        ({"max_job_seconds": {"cpu": 1e-3}}, "at most 0.001 s on cpu"),
    ],
)
def test_a_plan_over_a_limit_fails_the_job_before_it_measures(
    store: Store, tmp_path: Path, limits: dict[str, Any], message: str
) -> None:
    job_id = submit(store, "shards=2 examples=5")
    with supervising(store, settings(tmp_path, **limits)):
        job = ended(store, job_id)
        assert (job.state, job.error and job.error["type"]) == ("failed", "over_limit")
        assert message in str(job.error)
        assert store.results.outcomes(job_id, None) == []
        assert [row.kind for row in store.shards.of(job_id)] == ["plan"]
        assert store.shards.of(job_id)[0].failures == 1, "not tried again"


def test_a_plan_within_the_limits_gives_the_job_a_deadline(store: Store, tmp_path: Path) -> None:
    job_id = submit(store, "shards=2 examples=5")
    with supervising(store, settings(tmp_path)):
        job = ended(store, job_id)
    assert job.state == "succeeded"
    assert job.started_at is not None
    assert job.deadline is not None
    assert 3600 <= job.deadline - job.started_at < 3700


def test_a_training_over_the_steps_fails(store: Store, tmp_path: Path) -> None:
    job_id = submit_training(store, "steps=10")
    with supervising(store, settings(tmp_path, max_examples=9)):
        job = ended(store, job_id)
    assert (job.state, job.error and job.error["type"]) == ("failed", "over_limit")
    assert "recipe: 10 examples" in str(job.error)


@pytest.mark.costly
@pytest.mark.parametrize("end", ["evaluate:hang", "", "evaluate:error=final"])
def test_files_are_limited_in_sum(store: Store, tmp_path: Path, end: str) -> None:
    job_id = submit(store, f"shards=1 evaluate:fill=3000000 {end}")
    listed = tmp_path / "artifacts" / job_id / "listed"
    listed.parent.mkdir(parents=True)
    listed.write_text("mine")
    store.artifacts.add(job_id, "listed", str(listed), 4, "0" * 64, "text/plain")
    with supervising(store, settings(tmp_path, max_job_files_bytes=2_000_000)) as (supervisor,):
        job = ended(store, job_id)
        wait_for(lambda: [path.name for path in listed.parent.iterdir()] == ["listed"])
        wait_for(lambda: supervisor.evaluator_pid is None)
        assert ended(store, submit(store, "")).state == "succeeded", "the supervisor goes on"
    assert (job.state, job.error and job.error["type"]) == ("failed", "over_limit")
    assert "allowed: 2,000,000 (ASSAY_MAX_JOB_FILES_BYTES)" in str(job.error)
    assert sum(row.failures for row in store.shards.of(job_id)) == 1, "not tried again"


@pytest.mark.costly
def test_the_files_of_the_last_moment_count(store: Store, tmp_path: Path) -> None:
    job_id = submit(store, "shards=1 evaluate:seconds=1 evaluate:last=3000000")
    with supervising(store, settings(tmp_path, max_job_files_bytes=2_000_000, control_seconds=14)):
        job = ended(store, job_id)
    assert (job.state, job.error and job.error["type"]) == ("failed", "over_limit")


@pytest.mark.parametrize("most", [0, 4_000_000])
def test_files_within_the_limit_stay(store: Store, tmp_path: Path, most: int) -> None:
    job_id = submit(store, "shards=1 evaluate:fill=3000000")
    with supervising(store, settings(tmp_path, max_job_files_bytes=most)):
        assert ended(store, job_id).state == "succeeded"
    assert (tmp_path / "artifacts" / job_id / "half").stat().st_size == 1_500_000


def test_an_idle_evaluator_that_goes_on_writing_is_ended(store: Store, tmp_path: Path) -> None:
    go_on = tmp_path / "go_on"
    job_id = submit(store, f"shards=1 evaluate:refill=3000000,{go_on}")
    with supervising(store, settings(tmp_path, max_job_files_bytes=2_000_000)) as (supervisor,):
        assert ended(store, job_id).state == "succeeded"
        assert supervisor.evaluator_pid is not None
        go_on.touch()
        wait_for(lambda: supervisor.evaluator_pid is None)


def test_files_that_cannot_be_counted_are_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    for folder in (first, second):
        (folder / "sub").mkdir(parents=True)
        (folder / "sub" / "file").write_bytes(b"x" * 100_000)
    check_files([first, second, tmp_path / "gone"], 1_000_000)
    with pytest.raises(TooManyFiles, match="150,000"):
        check_files([first, second], 150_000)
    with (second / "holes").open("wb") as file:
        file.truncate(10_000_000)
    with pytest.raises(TooManyFiles, match="1,000,000"):
        check_files([first, second], 1_000_000)
    (first / "link").symlink_to("/usr")
    check_files([first], 1_000_000)
    with monkeypatch.context() as patch:
        patch.setattr(job_limits, "MAX_FILES", 2)
        with pytest.raises(TooManyFiles, match="more than 2 files"):
            check_files([first], 1_000_000)
    deep = first.joinpath(*["d"] * 40)
    deep.mkdir(parents=True)
    with pytest.raises(TooManyFiles, match="32 levels"):
        check_files([first], 10_000_000)

    def refuse(path: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(TooManyFiles, match="may not be read"):
        check_files([second], 10_000_000)
