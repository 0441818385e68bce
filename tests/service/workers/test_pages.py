"""The page of workers."""

from __future__ import annotations

import html
from typing import Any

import httpx

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
