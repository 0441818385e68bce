"""Jobs as tables in notebooks."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import httpx

from assay.service.cli.output import job_text
from assay.service.cli.progress_bars import line_of
from assay.service.client import AssayClient
from assay.service.client.notebook_tables import JobView
from assay.service.contract.results import Progress
from assay.service.reports.numbers import speed_text

Make = Callable[..., dict[str, Any]]


def test_a_job_shows_state_and_progress_and_escapes_names(
    transport: httpx.BaseTransport, train_body: Make
) -> None:
    client = AssayClient("http://127.0.0.1:8000", transport=transport)
    job = client.submit(train_body(name="<script>x</script>\u202e"))
    html = job._repr_html_()
    assert "queued" in html
    assert "tiny_vit" in html
    assert "&lt;script&gt;x" in html
    assert "<script>" not in html
    assert "\u202e" not in html
    assert "error" not in html
    canceled = client.cancel(job.id)
    assert "canceled" in canceled._repr_html_()
    assert all(isinstance(found, JobView) for found in (canceled, client.job(job.id), *client.jobs()))


def test_the_time_left_is_shown_while_a_job_runs(transport: httpx.BaseTransport, train_body: Make) -> None:
    job = AssayClient("http://127.0.0.1:8000", transport=transport).submit(train_body())
    progress = Progress(done=3, total=10, unit="steps", eta_seconds=41.7)
    assert "3 of 10 steps, about 42 s left" in job.model_copy(update={"progress": progress})._repr_html_()


def test_the_speed_of_a_training_is_shown_while_it_runs(
    transport: httpx.BaseTransport, train_body: Make
) -> None:
    job = AssayClient("http://127.0.0.1:8000", transport=transport).submit(train_body())
    progress = Progress(
        done=3,
        total=10,
        unit="steps",
        eta_seconds=None,
        examples_per_second=1234.4,
        gpu_busy=0.61,
        gpu_memory=0.25,
    )
    said = "1,234 examples/s, GPU 61% busy, GPU memory 25% in use"
    assert speed_text(progress) == said
    shown = job.model_copy(update={"progress": progress, "message": "epoch 1/2"})
    assert f"3 of 10 steps; {said}" in shown._repr_html_()
    assert line_of(shown).message == f"epoch 1/2; {said}"
    assert re.search(f"speed +{said}", job_text(shown))
    slow = progress.model_copy(update={"examples_per_second": 7.25, "gpu_busy": None})
    assert speed_text(slow) == "7.2 examples/s, GPU memory 25% in use"
