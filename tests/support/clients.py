"""Clients without a service."""

from __future__ import annotations

import httpx

from assay.service.client import AssayClient


def answering(*answers: httpx.Response | Exception) -> AssayClient:
    """A client whose calls get these answers, one after another."""
    left = list(answers)

    def handle(request: httpx.Request) -> httpx.Response:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return AssayClient("http://service.example", transport=httpx.MockTransport(handle))
