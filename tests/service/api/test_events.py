"""A job's events: replayed, followed live over a real server, and cleaned up after."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from sqlalchemy.exc import OperationalError

from assay.service.api import event_feed as feeds
from assay.service.api import events as route
from assay.service.app import create_app
from assay.service.settings import Settings
from assay.service.store.events import Events
from assay.service.store.store import Store
from tests.support.serving import LiveServer

Make = Callable[..., dict[str, Any]]
UNKNOWN = "01m7yq0tygpbr98qrkbw31n8h6"


def path(job_id: str) -> str:
    return f"/api/v1/jobs/{job_id}/events"


def read(text: str) -> list[tuple[int, str, dict[str, Any]]]:
    """The events in the text of a stream."""
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if "data" in fields:
            found.append((int(fields["id"]), fields["event"], json.loads(fields["data"])))
    return found


@pytest.fixture
def add(app_store: Store) -> Callable[[dict[str, Any]], str]:
    def add(body: dict[str, Any]) -> str:
        spec = {"priority": 5, "timeout_seconds": None, "execution": {"device": "auto"}, "tags": []} | body
        spec["evaluations"] = [{"params": {}} | item for item in spec.get("evaluations", [])]
        return app_store.jobs.add(spec, body_sha256="sha")[0].id

    return add


@pytest.fixture
def live(settings: Settings, app_store: Store) -> Iterator[LiveServer]:
    server = LiveServer(create_app(settings, store=app_store))
    yield server
    server.stop()


@pytest.fixture
def http(live: LiveServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=live.url, timeout=120, trust_env=False) as client:
        yield client


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "not within 120 s"
        time.sleep(0.01)


def test_an_ended_job_is_replayed_and_the_stream_ends(
    api: httpx.Client, add: Any, evaluate_body: Make, worker: Any, transport: Any
) -> None:
    job_id = add(evaluate_body())
    worker.run(job_id, [1, 1, 0, 1], [0, 0, 0, 1])
    answer = api.get(path(job_id))
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-store"
    found = read(answer.text)
    assert [number for number, _, _ in found] == list(range(1, len(found) + 1))
    states = [data["state"] for _, kind, data in found if kind == "state"]
    assert states == ["queued", "starting", "running", "succeeded"]
    metrics = [data for _, kind, data in found if kind == "metric"]
    assert [(data["evaluation"], data["name"]) for data in metrics] == [(0, "clean"), (1, "pgd")]
    assert metrics[0]["metrics"]["top1"]["value"] == 0.75
    assert found[-1][1] == "end"
    assert all(data["at"].endswith("Z") for _, _, data in found)
    assert (transport.app.state.feed.streams, transport.app.state.feed.polling) == (0, False)


def test_replay_from_the_middle_is_the_tail(
    api: httpx.Client, add: Any, train_body: Make, worker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(route, "PAGE", 2)
    job_id = add(train_body())
    worker.train(job_id)
    every = read(api.get(path(job_id)).text)
    assert len(every) > 5
    for after in range(len(every)):
        headers = {"Last-Event-ID": str(after)}
        assert read(api.get(path(job_id), headers=headers).text) == every[after:]
        assert read(api.get(f"{path(job_id)}?after={after}").text) == every[after:]
    both = api.get(f"{path(job_id)}?after=1", headers={"Last-Event-ID": "3"})
    assert read(both.text) == every[3:], "a browser keeps its address and adds the header"


def test_whoever_has_everything_is_told_to_stay_away(
    api: httpx.Client, add: Any, train_body: Make, worker: Any, app_store: Store
) -> None:
    job_id = add(train_body())
    worker.train(job_id)
    last = app_store.events.newest(job_id).seq
    for given in (last, last + 1, 10**17):
        answer = api.get(path(job_id), headers={"Last-Event-ID": str(given)})
        assert (answer.status_code, answer.content) == (204, b"")


@pytest.mark.parametrize("given", ["x", "-1", "1.5", "", "1" * 19, "0x1", " "])
def test_bad_ids_are_422(api: httpx.Client, add: Any, train_body: Make, given: str) -> None:
    job_id = add(train_body())
    answer = api.get(path(job_id), headers={"Last-Event-ID": given})
    assert answer.status_code == 422
    assert answer.json()["error"]["details"][0]["loc"] == ["header", "Last-Event-ID"]
    answer = api.get(path(job_id), params={"after": given})
    assert answer.status_code == 422
    assert answer.json()["error"]["details"][0]["loc"] == ["query", "after"]


@pytest.mark.parametrize("job_id", [UNKNOWN, "x", "%00"])
def test_unknown_jobs_are_404(api: httpx.Client, job_id: str) -> None:
    answer = api.get(path(job_id))
    assert (answer.status_code, answer.json()["error"]["type"]) == (404, "not_found")


def test_a_live_job_is_followed_to_its_end(
    http: httpx.Client, live: LiveServer, add: Any, train_body: Make, worker: Any, app_store: Store
) -> None:
    job_id = add(train_body())
    text = ""
    with http.stream("GET", path(job_id)) as answer:
        chunks = answer.iter_text()
        while "queued" not in text:
            text += next(chunks)
        worker.train(job_id)
        text += "".join(chunks)
    found = read(text)
    expected = [(row.seq, row.type) for row in app_store.events.of(job_id)]
    assert [(number, kind) for number, kind, _ in found] == expected
    assert found[-1][1] == "end"
    eventually(lambda: live.feed.streams == 0 and not live.feed.polling)


def test_a_retried_job_does_not_end_at_its_first_end(
    http: httpx.Client, add: Any, train_body: Make, worker: Any, app_store: Store
) -> None:
    job_id = add(train_body())
    worker.fail(job_id)
    app_store.jobs.retry(job_id)
    text = ""
    with http.stream("GET", path(job_id)) as answer:
        chunks = answer.iter_text()
        while '"attempt":2' not in text:
            text += next(chunks)
        worker.train(job_id)
        text += "".join(chunks)
    ends = [data["state"] for _, kind, data in read(text) if kind == "end"]
    assert ends == ["failed", "succeeded"]


@pytest.mark.costly
def test_many_streams_cost_one_query_and_see_the_same(
    live: LiveServer, add: Any, train_body: Make, worker: Any, app_store: Store, monkeypatch: Any
) -> None:
    asked = []
    since = Events.since

    def count(self: Events, positions: Any) -> Any:
        asked.append((threading.get_ident(), dict(positions)))
        return since(self, positions)

    monkeypatch.setattr(Events, "since", count)
    first, second = add(train_body()), add(train_body())
    texts: dict[int, str] = {}

    def follow(number: int) -> None:
        job_id, after = (first, number % 2) if number < 6 else (second, 0)
        texts[number] = httpx.get(
            f"{live.url}{path(job_id)}?after={after}", timeout=120, trust_env=False
        ).text

    threads = [threading.Thread(target=follow, args=(number,)) for number in range(9)]
    for thread in threads:
        thread.start()
    eventually(lambda: live.feed.streams == 9)
    asked.clear()
    eventually(lambda: len(asked) >= 2)
    assert all(positions.keys() == {first, second} for _, positions in asked[:2]), "one question for all"
    for job_id in (first, second):
        worker.train(job_id)
    for thread in threads:
        thread.join(120)
    for number, text in texts.items():
        job_id, after = (first, number % 2) if number < 6 else (second, 0)
        seen = [number for number, _, _ in read(text)]
        assert seen == [row.seq for row in app_store.events.of(job_id, after=after)]
    assert len(texts) == 9


def test_a_client_that_goes_away_leaves_nothing(live: LiveServer, add: Any, train_body: Make) -> None:
    job_id = add(train_body())
    with httpx.Client(base_url=live.url, trust_env=False) as client, contextlib.ExitStack() as stack:
        # Kept: httpx closes an answer whose iterator is gone.
        reading = []
        for _ in range(3):
            reading.append(stack.enter_context(client.stream("GET", path(job_id))).iter_text())
            next(reading[-1])
        assert live.feed.streams == 3
    eventually(lambda: live.feed.streams == 0 and not live.feed.polling)
    eventually(lambda: not live.server.server_state.connections and not live.server.server_state.tasks)


def test_a_quiet_stream_has_comments(
    http: httpx.Client, add: Any, train_body: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert route.COMMENT_SECONDS == 15
    monkeypatch.setattr(route, "COMMENT_SECONDS", 0.05)
    with http.stream("GET", path(add(train_body()))) as answer:
        lines = answer.iter_lines()
        comments = [line for line in (next(lines) for _ in range(12)) if line.startswith(":")]
    assert len(comments) >= 2


@pytest.mark.parametrize("session", [False, True])
def test_revoking_the_key_ends_its_streams(
    settings: Settings,
    app_store: Store,
    train_body: Make,
    add: Any,
    monkeypatch: pytest.MonkeyPatch,
    session: bool,
) -> None:
    assert route.CHECK_SECONDS == 15
    monkeypatch.setattr(route, "COMMENT_SECONDS", 0.05)
    monkeypatch.setattr(route, "CHECK_SECONDS", 0.05)
    server = LiveServer(create_app(settings.model_copy(update={"require_keys": True}), store=app_store))
    row, text = app_store.keys.create("n", ["admin"])
    job_id = add(train_body())
    with httpx.Client(base_url=server.url, timeout=120, trust_env=False) as http:
        headers = {} if session else {"Authorization": f"Bearer {text}"}
        if session:
            assert http.post("/api/v1/session", json={"key": text}).status_code == 201
        with http.stream("GET", path(job_id), headers=headers) as answer:
            assert answer.status_code == 200
            chunks = answer.iter_text()
            assert any(": nothing new" in next(chunks) for _ in range(20)), "it goes on while the key works"
            app_store.keys.revoke(row.id)
            assert "event: end" not in "".join(chunks)
        assert http.get(path(job_id), headers=headers).status_code == 401
    server.stop()


def test_a_deleted_job_ends_its_streams(
    http: httpx.Client, add: Any, train_body: Make, app_store: Store
) -> None:
    job_id = add(train_body())
    with http.stream("GET", path(job_id)) as answer:
        chunks = answer.iter_text()
        next(chunks)
        app_store.jobs.cancel(job_id)
        app_store.jobs.delete(job_id)
        rest = "".join(chunks)
    assert rest.count("event: end") <= 1
    assert http.get(path(job_id)).status_code == 404


def test_shutting_down_ends_the_streams_in_order(
    settings: Settings, app_store: Store, add: Any, train_body: Make, caplog: pytest.LogCaptureFixture
) -> None:
    server = LiveServer(create_app(settings, store=app_store), grace_seconds=60)
    job_id = add(train_body())
    with httpx.Client(base_url=server.url, timeout=120, trust_env=False) as client:
        with client.stream("GET", path(job_id)) as answer:
            chunks = answer.iter_text()
            next(chunks)
            with caplog.at_level(logging.ERROR):
                server.stop()
            rest = "".join(chunks)  # a stream that is cut off would raise here
        assert "event: end" not in rest
    assert caplog.records == []
    assert (server.feed.streams, server.feed.polling) == (0, False)


def test_a_database_that_is_away_is_waited_for(
    http: httpx.Client, add: Any, train_body: Make, worker: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setattr(feeds, "AWAY_SECONDS", 0.01)
    job_id = add(train_body())
    since = Events.since
    failures = []

    def fail(self: Events, positions: Any) -> Any:
        if len(failures) < 3:
            failures.append(positions)
            raise OperationalError("SELECT", {}, Exception("gone"))
        return since(self, positions)

    monkeypatch.setattr(Events, "since", fail)
    with http.stream("GET", path(job_id)) as answer:
        chunks = answer.iter_text()
        next(chunks)
        worker.train(job_id)
        assert "event: end" in "".join(chunks)
    assert len(failures) == 3
    away = [record for record in caplog.records if "the database is away" in record.message]
    assert len(away) == 1, "said once, not at every look"


def test_a_reader_that_is_too_slow_must_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "MAX_WAITING", 2)
    subscription = feeds.Subscription("job", 0)
    for _ in range(4):
        subscription.put([])
    assert subscription.queue.qsize() == 1
    assert subscription.queue.get_nowait() is None
