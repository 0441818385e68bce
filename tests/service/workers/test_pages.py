"""The page of workers."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

import httpx
import pytest

from assay.service.settings import Settings
from assay.service.store.store import Store
from tests.support.pages import PAGE


def test_a_worker_of_other_code_is_unknown(api: httpx.Client, app_store: Store) -> None:
    code: Any = {"code": {"version": "1.0", "commit": "f00d", "source_sha256": "cd" * 32}}
    app_store.workers.beat("w", "vm", ["cpu"], 1, code, 1, "vm:0", "b2" * 8)
    app_store.identities.declare({"version": "1.0", "source_sha256": "ab" * 32})
    text = html.unescape(api.get("/workers", headers=PAGE).text)
    assert f"unknown: its identity {'b2' * 8} (version 1.0, commit f00d) is not the service's own" in text
    assert "not of this service's release" in text
    assert f"1 workers take no jobs: identity {'b2' * 8} (version 1.0, commit f00d) waits for" in text


def test_workers_are_named_as_on_the_command_line(api: httpx.Client, app_store: Store) -> None:
    for number in range(2):
        worker = f"vm:18bc1341-0000-4000-8000-000000000000:16578:{number}"
        staged: Any = {"staged": {"birds": "a" * 64}} if number else {}
        app_store.workers.beat(worker, "vm", ["cpu"], 16578, staged, 1, name=f"vm:{number}")
    text = api.get("/workers", headers=PAGE).text
    assert '<span class="id">vm:0</span>' in text
    assert '<span class="id">vm:1</span>' in text
    assert text.count('<td data-label="State">online</td>') == 2
    assert text.count('<td data-label="Job">') == 2
    assert text.count('<td data-label="Staged data">birds</td>') == 1


DISTRIBUTED = {
    "mode": "distributed",
    "database_url": "postgresql+psycopg:///assay",
    "redis_url": "redis://127.0.0.1:6379/3",
}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"workers": 0}, "assay worker --gateway"),
        ({"workers": 1}, "its log says why"),
        (DISTRIBUTED, "docker compose up worker; in Kubernetes the keeper"),
    ],
)
def test_an_empty_page_says_how_this_service_gets_a_worker(
    app_store: Store, serve: Any, tmp_path: Path, given: dict[str, Any], said: str
) -> None:
    with serve(Settings(state=tmp_path, **given), app_store) as client:
        headers = (
            PAGE if given is not DISTRIBUTED else {**PAGE, "Authorization": f"Bearer {admin(app_store)}"}
        )
        assert said in html.unescape(client.get("/workers", headers=headers).text)


def test_an_empty_page_knows_the_fleets(api: httpx.Client, app_store: Store) -> None:
    report = {"engine": "Slurm", "device": "cpu", "most": 4, "running": 0, "pending": 0, "reason": ""}
    api.put("/api/v1/workers/fleets/a100", json=report)
    text = api.get("/workers", headers=PAGE).text
    assert "A fleet starts workers while shards are queued." in text
    assert "docker compose" not in text


def admin(store: Store) -> str:
    return store.keys.create("me", ["admin"])[1]
