"""The client's calls for signatures."""

from __future__ import annotations

import httpx
import pytest

from assay.service.client import AssayClient
from assay.service.contract.errors import InvalidState


def test_a_signature_is_the_bytes_of_its_file() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/api/v1/jobs/j1/signature"
        return httpx.Response(200, content=b'{ "payload": ""}\n')

    assert AssayClient(transport=httpx.MockTransport(answer)).signature("j1") == b'{ "payload": ""}\n'


def test_a_job_without_complete_results_has_none() -> None:
    body = {"error": {"type": "invalid_state", "message": "the results are not complete", "details": []}}
    client = AssayClient(transport=httpx.MockTransport(lambda _: httpx.Response(409, json=body)))
    with pytest.raises(InvalidState, match="not complete"):
        client.signature("j1")
