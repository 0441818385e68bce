"""The client's calls for tenants and their keys."""

from __future__ import annotations

import json
from typing import Any

import httpx

from assay.service.client import AssayClient

KEY = {
    "id": "k1", "name": "ci", "scopes": ["read"], "tenant": "team", "created_at": "2026-11-28T10:00:00Z",
    "expires_at": None, "revoked_at": None, "last_used_at": None, "prefix": "assay", "key": "assay_x",
}  # fmt: skip


def test_what_is_not_said_of_a_key_is_not_sent() -> None:
    sent: list[dict[str, Any]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            sent.append(json.loads(request.content))
        return httpx.Response(201, json=KEY)

    client = AssayClient(transport=httpx.MockTransport(answer))
    assert client.create_key("ci", ["read"]).key == "assay_x"
    client.create_key("ci", ("read", "submit"), tenant="team", expires_days=2)
    assert sent == [
        {"name": "ci", "scopes": ["read"]},
        {"name": "ci", "scopes": ["read", "submit"], "tenant": "team", "expires_days": 2},
    ]


def test_the_id_of_a_key_stays_one_part_of_the_path() -> None:
    paths: list[bytes] = []

    def answer(request: httpx.Request) -> httpx.Response:
        paths.append(request.url.raw_path)
        return httpx.Response(204)

    AssayClient(transport=httpx.MockTransport(answer)).revoke_key("../tenants/a")
    assert paths == [b"/api/v1/keys/..%2Ftenants%2Fa"]
