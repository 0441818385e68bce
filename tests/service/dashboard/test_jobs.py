"""The page of all jobs: filters, search and pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx

from tests.support.pages import PAGE, Tags, page

Make = Callable[..., dict[str, Any]]


def test_jobs_are_filtered_searched_and_paged(api: httpx.Client, train_body: Make) -> None:
    for number in range(52):
        assert api.post("/api/v1/jobs", json=train_body(name=f"run {number:02d}")).status_code == 201
    text = page(api, "/jobs")
    assert "run 51" in text
    assert "run 01" not in text
    following = next(a["href"] for tag, a in Tags(text).found if tag == "a" and a.get("rel") == "next")
    assert following is not None
    assert "run 01" in page(api, following)
    assert "run 03" not in page(api, "/jobs?search=RUN+04&state=&kind=&model=&tag=")
    assert "run 04" in page(api, "/jobs?search=RUN+04&state=&kind=&model=&tag=")
    assert "No job matches" in page(api, "/jobs?state=failed")
    assert "No job matches" in page(api, "/jobs?search=%25")


def test_a_wrong_filter_is_an_error_page_with_the_nearest_name(api: httpx.Client) -> None:
    text = page(api, "/jobs?state=runing", 422)
    assert "runing" in text
    assert "<code>running</code>" in text
    assert "query.stat" in page(api, "/jobs?stat=running", 422)


def test_an_unknown_state_is_refused_with_those_that_there_are(api: httpx.Client) -> None:
    answer = api.get("/jobs?state=foo", headers=PAGE)
    assert answer.status_code == 422
    assert "allowed: queued, waiting" in answer.text or "allowed: waiting, queued" in answer.text
    assert "succeeded" in answer.text.partition("allowed: ")[2].partition("</p>")[0]
