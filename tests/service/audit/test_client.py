"""The client's calls for the audit: pages until there are enough entries, and answers that are no entries."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from assay.service.client import AssayClient
from assay.service.client.transport import BadAnswer
from assay.service.contract.errors import Forbidden


def _client(answer: Callable[[httpx.Request], httpx.Response]) -> AssayClient:
    return AssayClient(transport=httpx.MockTransport(answer))


def test_a_page_in_place_of_entries_is_refused() -> None:
    client = _client(lambda _: httpx.Response(200, text="<html>", headers={"Content-Type": "text/html"}))
    with pytest.raises(BadAnswer, match="not with audit entries"):
        list(client.audit())


@pytest.mark.parametrize("line", ["7", "{"])
def test_a_line_that_is_no_object_is_refused(line: str) -> None:
    headers = {"Content-Type": "application/x-ndjson"}
    client = _client(lambda _: httpx.Response(200, text=line + "\n", headers=headers))
    with pytest.raises(BadAnswer, match="not a JSON object"):
        list(client.audit())


def test_a_refusal_is_its_error() -> None:
    body = {"error": {"type": "forbidden", "message": "the scope admin is missing", "details": []}}
    client = _client(lambda _: httpx.Response(403, json=body))
    with pytest.raises(Forbidden, match="admin"):
        list(client.audit(tenant="alice"))
