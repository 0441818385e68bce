"""Usage over HTTP, in the client, the terminal and the page."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from sqlalchemy import delete, insert, select

from assay.service.cli import commands, main
from assay.service.client import AssayClient
from assay.service.settings import Settings
from assay.service.store.clock import now
from assay.service.store.ids import encode_cursor
from assay.service.store.store import Store
from assay.service.store.tables import jobs
from assay.service.store.tenant_tables import usage
from tests.support.jobs import evaluate_spec

PATH = "/api/v1/usage"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"require_keys": True})


@pytest.fixture
def key(app_store: Store) -> Callable[..., str]:
    return lambda tenant, scope="read": app_store.keys.create(scope, [scope], tenant=tenant)[1]


def used(store: Store, tenant: str, name: str, gpu: int, *tags: str, **parts: int) -> str:
    """A job of a tenant with so many GPU-seconds today, and a CPU-second."""
    spec = evaluate_spec(name=name, tags=list(tags))
    job_id = store.jobs.add(spec, body_sha256="x", tenant=tenant)[0].id
    with store._database.writing() as connection:
        day = int(connection.execute(select(now())).scalar_one() // 86400)
        kind = connection.execute(select(jobs.c.kind).where(jobs.c.id == job_id)).scalar_one()
        entry = {"job_id": job_id, "day": day, "tenant": tenant, "kind": kind, "study_id": None}
        for pool, seconds in (("cuda", gpu), ("cpu", 1)):
            told = {"starts": 0, "lost": 0, "repeated": 0, **(parts if pool == "cuda" else {})}
            connection.execute(insert(usage).values(**entry, pool=pool, milliseconds=seconds * 1000, **told))
    return job_id


@pytest.fixture
def made(app_store: Store) -> list[str]:
    return [
        used(app_store, "alice", "=cmd()", 10, "a", "b", starts=2000),
        used(app_store, "alice", "second", 30, "b", lost=3000),
        used(app_store, "bob", "third", 5),
    ]


def asked(api: httpx.Client, key: str, **query: Any) -> httpx.Response:
    return api.get(PATH, params=query, headers={"Authorization": f"Bearer {key}"})


def test_a_tenant_sees_its_own_and_an_administrator_all(
    api: httpx.Client, key: Callable[..., str], made: list[str]
) -> None:
    own = asked(api, key("alice")).json()
    assert [item["key"] for item in own["items"]] == [made[1], made[0]]
    assert own["items"][0]["gpu"] == {"total": 30, "starts": 0, "lost": 3, "repeated": 0, "running": 0}
    assert (own["total"]["jobs"], own["total"]["gpu"]["total"], own["total"]["cpu"]["total"]) == (2, 40, 2)
    by_tag = asked(api, key("alice"), by="tag").json()
    assert {item["key"]: item["gpu"]["total"] for item in by_tag["items"]} == {"b": 40, "a": 10}
    assert by_tag["total"] == own["total"]
    every = asked(api, key("ops", "admin"), by="tenant").json()
    assert [(item["key"], item["jobs"]) for item in every["items"]] == [("alice", 2), ("bob", 1)]
    assert asked(api, key("ops", "admin"), by="study").json()["items"][0]["key"] is None
    assert asked(api, key("carol"), by="tenant").json()["items"] == []


def test_sums_are_exact(api: httpx.Client, key: Callable[..., str], app_store: Store) -> None:
    for name, seconds in (("first", 4_000_000_000_001), ("second", 2)):
        used(app_store, "alice", name, seconds, "a")
    assert asked(api, key("alice")).json()["total"]["gpu"]["total"] == 4_000_000_000_003
    assert asked(api, key("alice"), by="tag").json()["items"][0]["gpu"]["total"] == 4_000_000_000_003


def test_a_line_of_the_csv_is_no_formula(api: httpx.Client, key: Callable[..., str], made: list[str]) -> None:
    answer = asked(api, key("alice"), format="csv", limit=1)
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(answer.text.splitlines()))
    assert [row["name"] for row in rows] == ["second", "'=cmd()"]
    assert rows[0]["gpu_lost"] == "3.0"


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"by": "jobs"}, "by"),
        ({"since": "yesterday"}, "since"),
        ({"since": "2026-02-01", "until": "2026-01-01"}, "since"),
        ({"until": "2026-13-01"}, "until"),
        ({"limit": 201}, "limit"),
        ({"cursor": "Zm9v"}, "cursor"),
        ({"cursor": encode_cursor('["job", 1, 1, "\\"]')}, "cursor"),
        ({"cursor": encode_cursor('["job", 007, 1, "a"]')}, "cursor"),
        ({"cursor": encode_cursor('["job", 1, 1, "a", 3, "b"]')}, "cursor"),
        ({"from": "2026-01-01"}, "from"),
    ],
)
def test_a_wrong_parameter_is_named(
    api: httpx.Client, key: Callable[..., str], query: dict[str, Any], field: str
) -> None:
    answer = asked(api, key("alice"), **query)
    assert answer.status_code == 422
    assert [detail["loc"] for detail in answer.json()["error"]["details"]] == [["query", field]]


def test_the_first_days_of_the_calendar_have_nothing(
    api: httpx.Client, key: Callable[..., str], made: list[str]
) -> None:
    answer = asked(api, key("alice"), until="0001-01-05")
    assert (answer.status_code, answer.json()["since"], answer.json()["items"]) == (200, "0001-01-01", [])


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    transport: Any,
    key: Callable[..., str],
) -> Callable[..., tuple[int, str]]:
    monkeypatch.setenv("ASSAY_KEY", key("alice"))
    monkeypatch.setattr(commands, "AssayClient", lambda url: AssayClient(url, transport=transport))

    def run(*arguments: str) -> tuple[int, str]:
        try:
            code = main.main(("usage", *arguments))
        except SystemExit as stop:
            code = int(stop.code or 0)
        said = capsys.readouterr()
        return code, said.out + said.err

    return run


def test_the_terminal_shows_lines_their_sum_and_the_waste(
    run: Callable[..., tuple[int, str]], made: list[str]
) -> None:
    code, out = run()
    lines = out.splitlines()
    assert code == 0
    assert lines[1].split() == ["JOB", "NAME", "JOBS", "GPU", "S", "WASTED", "CPU", "S", "WASTED"]
    assert lines[2].split() == [made[1], "second", "1", "30.0", "3.0", "1.0", "0.0"]
    assert lines[4].split() == ["total", "-", "2", "40.0", "5.0", "2.0", "0.0"]
    assert lines[5].startswith("GPU: 40.0 s; wasted: starts 2.0 s (5.0%), lost 3.0 s (7.5%), repeated 0.0 s")
    assert "the first 1 lines" in run("--limit", "1")[1]
    assert json.loads(run("--by", "tag", "--format", "json")[1])["by"] == "tag"
    assert run("--by", "tag", "--format", "csv")[1].startswith("key,name,jobs,gpu_total,")
    code, out = run("--since", "yesterday")
    assert (code, "allowed: a day such as 2026-01-31" in out) == (2, True)


def test_the_client_reads_page_after_page(transport: Any, key: Callable[..., str], app_store: Store) -> None:
    made = [used(app_store, "alice", "", 1000 - number) for number in range(3)]
    with AssayClient(key=key("alice"), transport=transport) as client:
        client._json = _by_one(client._json)  # type: ignore[method-assign]
        assert [item.key for item in client.usage(limit=3).items] == made
        assert client.usage(limit=2).next_cursor is not None
        assert [line.key for line in client.usage_lines()] == made


def _by_one(call: Callable[..., Any]) -> Callable[..., Any]:
    """Pages of a line."""
    return lambda method, path, params: call(method, path, params={**params, "limit": "1"})


def test_the_page_has_links_waste_and_the_csv(
    api: httpx.Client, key: Callable[..., str], app_store: Store, made: list[str]
) -> None:
    headers = {"Authorization": f"Bearer {key('alice')}", "Accept": "text/html"}
    text = api.get("/usage", headers=headers).text
    assert f'<a href="/jobs/{made[1]}">second</a>' in text
    assert "12.5 %" in text
    assert "lost 3.0 s" in text
    assert "repeated" not in text, "what is nothing"
    assert "format=csv" in text
    with app_store._database.writing() as connection:
        connection.execute(delete(usage).where(usage.c.pool == "cuda"))
    text = api.get("/usage?by=tag", headers=headers).text
    assert "CPU time" in text
    assert "GPU time" not in text, "no GPU was used on these days"
    assert made[2] not in text
    app_store.jobs.cancel(made[1])
    app_store.jobs.delete(made[1])
    assert f"{made[1]} <span" in api.get("/usage?since=&until=", headers=headers).text
    assert api.get("/usage?since=x", headers=headers).status_code == 422
