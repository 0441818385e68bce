"""The client follows a job across broken connections and restarts of the service."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from assay.service.app import create_app
from assay.service.cli.job_progress import applied, follow
from assay.service.client import AssayClient, BadAnswer, events
from assay.service.client.transport import Unreachable
from assay.service.contract.errors import NotFound
from assay.service.contract.events import Event
from assay.service.settings import Settings
from assay.service.store.store import Store
from tests.support.serving import LiveServer

Make = Callable[..., dict[str, Any]]
UNKNOWN = "01m7yq0tygpbr98qrkbw31n8h6"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "PAUSE_SECONDS", 0.01)


@pytest.fixture
def live(settings: Settings, app_store: Store) -> Iterator[LiveServer]:
    server = LiveServer(create_app(settings, store=app_store))
    yield server
    server.stop()


def event(number: int, kind: str = "log", **data: Any) -> str:
    text = ",".join(
        ['"at":"2026-01-01T00:00:00.000Z"', *(f'"{key}":"{value}"' for key, value in data.items())]
    )
    return f"id: {number}\nevent: {kind}\ndata: {{{text}}}\n\n"


def answering(*answers: httpx.Response | Exception) -> tuple[AssayClient, list[str]]:
    """A client whose calls get these answers, and the `Last-Event-ID` of each call."""
    left, asked = list(answers), []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers["last-event-id"])
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return AssayClient("http://service.example", transport=httpx.MockTransport(handle)), asked


def stream(*parts: str, broken: bool = False) -> httpx.Response:
    class Body(httpx.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            yield from (part.encode() for part in parts)
            if broken:
                raise httpx.ReadError("connection reset")

    return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=Body())


def test_events_of_a_job_that_has_ended(
    live: LiveServer, train_body: Make, worker: Any, app_store: Store
) -> None:
    with AssayClient(live.url) as client:
        job = client.submit(digits())
        claim = app_store.shards.claim("w", ["cpu"], lease_seconds=60)
        assert claim is not None
        app_store.shards.fail(claim, "out_of_memory", "8 GB", retry=False)
        every = list(client.events(job.id))
        assert [item.id for item in every] == [1, 2, 3, 4]
        assert [item.type for item in every] == ["state", "state", "state", "end"]
        assert every[-1].data["error"] == {"type": "out_of_memory", "message": "8 GB"}
        assert list(client.events(job.id, after=2)) == every[2:]
        assert list(client.events(job.id, after=4)) == []
        with pytest.raises(NotFound):
            list(client.events(UNKNOWN))


def digits() -> dict[str, Any]:
    return {
        "kind": "train",
        "model": {"name": "symvit"},
        "data": {"name": "digits"},
        "recipe": {"name": "small_vit"},
    }


def test_a_restart_of_the_service_loses_and_repeats_nothing(
    settings: Settings, app_store: Store, live: LiveServer
) -> None:
    servers = [live]

    def restart() -> None:
        port = servers[-1].port
        servers[-1].stop()
        servers.append(LiveServer(create_app(settings, store=app_store), port))

    with AssayClient(live.url) as client:
        job_id = client.submit(digits()).id
        following = client.events(job_id)
        seen = [next(following)]
        restart()
        claim = app_store.shards.claim("w", ["cpu"], lease_seconds=60)
        assert claim is not None
        seen += [next(following)]
        app_store.shards.progress(claim, 1, 10, "epoch 1")
        restart()
        app_store.shards.fail(claim, "boom", "no", retry=False)
        seen += following
    servers[-1].stop()
    assert [(item.id, item.type) for item in seen] == [
        (row.seq, row.type) for row in app_store.events.of(job_id)
    ]
    assert seen[-1].type == "end"


def test_a_broken_stream_goes_on_after_the_last_event() -> None:
    client, asked = answering(
        stream(": hello\n\nretry: 1000\n\n", event(1), event(2), "id: 3\nevent: lo", broken=True),
        httpx.ConnectError("refused"),
        stream(event(3)),
        stream(event(4), event(5, "end")),
    )
    assert [item.id for item in client.events("job")] == [1, 2, 3, 4, 5]
    assert asked == ["0", "2", "2", "3"]


def test_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "RECONNECT_SECONDS", -1.0)
    client, _ = answering(stream(event(1), broken=True))
    following = client.events("job")
    assert next(following).id == 1
    with pytest.raises(Unreachable):
        next(following)


def test_what_is_no_stream_is_refused() -> None:
    client, _ = answering(httpx.Response(200, text="<html>"))
    with pytest.raises(BadAnswer):
        next(client.events("job"))


def test_unknown_kinds_and_fields_are_skipped() -> None:
    text = [event(1, "news"), "id: x\nevent: log\ndata: {}\n\n", "data: []\n\n", "nonsense\n\n", event(2)]
    lines = "".join(text).split("\n")
    assert [item.id for item in events.parsed(lines)] == [2]


@pytest.mark.costly
def test_a_job_is_followed_over_its_events(live: LiveServer, app_store: Store) -> None:
    drawn: list[tuple[str, int]] = []
    with AssayClient(live.url) as client:
        job = client.submit(digits())
        claims = []

        def draw(now: Any, event: Any = None) -> None:
            drawn.append((str(now.state), now.progress.done))
            if now.state == "queued":
                claims.append(app_store.shards.claim("w", ["cpu"], lease_seconds=60))
            elif now.state == "starting":
                app_store.shards.progress(claims[0], 3, 10)
            elif now.progress.done == 3 and now.state == "running":
                app_store.shards.fail(claims[0], "boom", "no", retry=False)

        ended = follow(client, job, draw)
    assert ended.error is not None
    assert ended.error.message == "no"
    assert drawn[0][0] == "queued"
    assert {("starting", 0), ("running", 3), ("failed", 3)} <= set(drawn)


def test_events_change_the_job_that_is_drawn(live: LiveServer) -> None:
    with AssayClient(live.url) as client:
        job = client.submit(digits())
    at = "2026-01-01T00:00:00.000Z"
    told = Event(id=1, type="log", at=at, data={"message": "epoch 3"})
    assert applied(job, told).message == "epoch 3"
    told = Event(id=2, type="metric", at=at, data={"evaluation": 0})
    assert applied(job, told) == job


def test_a_lost_service_is_told_with_the_job_and_how_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "RECONNECT_SECONDS", -1.0)
    client, _ = answering(stream(event(1)), httpx.ConnectError("refused"))
    with pytest.raises(
        Unreachable, match=r"refused.*; job x1 is kept there: .*`assay status x1 --wait` follows it"
    ):
        list(client.events("x1"))
