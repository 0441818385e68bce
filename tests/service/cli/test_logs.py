"""`assay logs` and `assay open`."""

from __future__ import annotations

import json
import re
import webbrowser
from collections.abc import Callable
from typing import Any

import pytest

from assay.service.cli import commands, main
from assay.service.cli.logs import event_text
from assay.service.client import AssayClient
from assay.service.contract.events import Event

Make = Callable[..., dict[str, Any]]
URL = "http://127.0.0.1:8000"


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch, transport: Any) -> AssayClient:
    monkeypatch.setattr(commands, "AssayClient", lambda url: AssayClient(url, transport=transport))
    return AssayClient(URL, transport=transport)


def test_logs_are_the_events_so_far(
    client: AssayClient, capsys: pytest.CaptureFixture[str], train_body: Make, worker: Any, app_store: Any
) -> None:
    job = client.submit(train_body())
    app_store.workers.beat("w", "host", ["cpu"], 1)
    claim = worker.claim(job.id)
    app_store.shards.progress(claim, 25, 100, "epoch 3 of 12 \x1b[31m")
    assert main.main(["logs", job.id]) == 0
    lines = [re.sub(r"^\S+Z  ", "", line) for line in capsys.readouterr().out.splitlines()]
    said = r"epoch 3 of 12 \x1b[31m"
    assert lines == ["queued", "starting", "running", said, f"now running, 25/100 steps: {said}"]


def test_logs_end_with_the_numbers_and_the_error(
    client: AssayClient,
    capsys: pytest.CaptureFixture[str],
    train_body: Make,
    evaluate_body: Make,
    worker: Any,
) -> None:
    job = client.submit(evaluate_body())
    worker.run(job.id, [1, 1, 1, 0], [1, 0, 0, 0])
    assert main.main(["logs", job.id, "--follow"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"Z  pgd epsilon=2/255: top1 0.25 \[0.04559, 0.6994\], n = 4\n", out)
    assert re.search(r"Z  succeeded\n", out)
    failed = client.submit(train_body(name="other"))
    worker.fail(failed.id)
    assert main.main(["logs", failed.id]) == 0
    assert capsys.readouterr().out.endswith("failed: out_of_memory: 8 GB were not enough\n")
    assert main.main(["logs", failed.id, "--json"]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [events[0]["type"], events[-1]["type"]] == ["state", "end"]


def test_logs_say_nothing_twice() -> None:
    at = "2026-11-26T10:00:00Z"
    error = {"type": "timed_out", "message": "the job took too long"}
    state = {"state": "timed_out", "attempt": 1, "message": error["message"], "error": error}
    event = Event(id=1, type="state", at=at, data=state)
    assert event_text(event) == "timed_out: the job took too long"
    running = {"state": "running", "attempt": 1, "message": "planning", "error": None}
    assert event_text(Event(id=2, type="state", at=at, data=running), "planning") == "running"
    assert event_text(Event(id=3, type="state", at=at, data=running)) == "running: planning"


@pytest.mark.costly
def test_open_prints_the_address_and_opens_it(
    client: AssayClient, capsys: pytest.CaptureFixture[str], train_body: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, opened = client.submit(train_body()), []
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or True)
    assert main.main(["open", job.id]) == 0
    assert (capsys.readouterr().out, opened) == (f"{URL}/jobs/{job.id}\n", [f"{URL}/jobs/{job.id}"])
    monkeypatch.setattr(webbrowser, "open", lambda address: False)
    assert main.main(["open", job.id]) == 0
    assert "no browser here" in capsys.readouterr().err
    assert main.main(["open", "nope"]) == 2
    assert capsys.readouterr().err.startswith("error: ")
