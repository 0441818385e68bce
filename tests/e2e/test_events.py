"""The events of a real job, followed while it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.service.contract.events import Event
from tests.e2e.jobs import attacking, pgd
from tests.e2e.running import RunningService

Start = Callable[..., RunningService]
EVALUATIONS = [{"name": "clean"}, pgd("2/255", steps=5), pgd("8/255", steps=5)]


def test_a_job_is_followed_from_its_submission_to_its_end(shared: RunningService) -> None:
    client = shared.client
    job_id = client.submit(attacking(None, EVALUATIONS)).id
    live: list[Event] = []
    follower = threading.Thread(target=lambda: live.extend(client.events(job_id)))
    follower.start()
    ended = client.wait(job_id, timeout_seconds=120)
    follower.join(60)
    assert not follower.is_alive(), "the stream does not end with its job"
    assert ended.state == "succeeded", ended.error
    assert [event.id for event in live] == list(range(1, len(live) + 1))
    states = [event.data["state"] for event in live if event.type == "state"]
    assert states == ["queued", "starting", "running", "succeeded"]
    metrics = {event.data["evaluation"]: event.data for event in live if event.type == "metric"}
    assert [event.type for event in live].count("metric") == len(EVALUATIONS) == len(metrics)
    for index, evaluation in enumerate(client.results(job_id).evaluations):
        assert metrics[index]["name"] == evaluation.name
        told = metrics[index]["metrics"]["top1"]
        assert told == evaluation.metrics["top1"].model_dump()
    assert live[-1].type == "end"
    assert live[-1].data == {"state": "succeeded", "attempt": 1, "error": None}
    progress = [event.data["done"] for event in live if event.type == "progress"]
    assert progress == sorted(progress)
    assert len(progress) >= 1
    assert list(client.events(job_id)) == live
    middle = len(live) // 2
    assert list(client.events(job_id, after=middle)) == live[middle:]


@pytest.mark.costly
def test_a_stop_of_the_service_does_not_wait_for_open_streams(start_service: Start, tmp_path: Path) -> None:
    """It ends them in order, and the log has no answer that was cut off."""
    running = start_service(tmp_path / "state")
    job_id = running.client.submit(attacking(None, [pgd("8/255", steps=200)] * 4)).id
    following = running.client.events(job_id)
    assert next(following).id == 1
    running.stop()
    log = (tmp_path / "state").with_suffix(".log").read_text()
    assert "graceful shutdown exceeded" not in log
    assert "Traceback" not in log
