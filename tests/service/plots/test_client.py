"""The client's calls for plots: ids are escaped, and several jobs are one request."""

from __future__ import annotations

import httpx
import pytest

from assay.service.client import AssayClient


@pytest.mark.parametrize(("jobs", "asked"), [("a", "a"), (["a", "b"], "a,b")])
def test_a_plot_of_several_jobs_is_one_request(jobs: str | list[str], asked: str) -> None:
    seen: list[httpx.URL] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.url)
        return httpx.Response(200, content=b"<svg/>")

    client = AssayClient(transport=httpx.MockTransport(answer))
    assert client.plot(jobs, "security_curve", scheme="dark") == b"<svg/>"
    assert [url.path for url in seen] == ["/api/v1/plots/security_curve"]
    assert dict(seen[0].params) == {"jobs": asked, "format": "svg", "scheme": "dark"}


def test_an_odd_id_stays_one_part_of_the_path() -> None:
    seen: list[bytes] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.url.raw_path)
        return httpx.Response(200, json={"items": [], "next_cursor": None})

    assert AssayClient(transport=httpx.MockTransport(answer)).plots("a/../b?") == []
    assert seen == [b"/api/v1/jobs/a%2F..%2Fb%3F/plots"]
