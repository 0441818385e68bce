"""The page of all jobs: filters, search and pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from assay.service.contract.summaries import JobSummary, SummaryValue
from assay.service.store.row_mapping import summary_columns
from assay.service.store.store import Store
from tests.support.pages import PAGE, Tags, page

Make = Callable[..., dict[str, Any]]


@pytest.mark.costly
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


def measured(store: Store, job_id: str, worst: float, *invalid: str) -> None:
    found = SummaryValue(metric="top1", value=worst, n=300, at="8/255", radius=8 / 255)
    clean = SummaryValue(metric="top1", value=0.87, n=300)
    store.jobs.summarise(job_id, summary_columns(JobSummary(clean=clean, worst=found, invalid=[*invalid])))


def test_jobs_have_columns_that_the_address_chooses_and_sorts(
    api: httpx.Client, app_store: Store, train_body: Make
) -> None:
    ids = [api.post("/api/v1/jobs", json=train_body(name=f"run {n}", seed=n)).json()["id"] for n in range(3)]
    measured(app_store, ids[0], 0.25)
    measured(app_store, ids[2], 0.5, "below_chance")
    text = page(api, "/jobs?sort=-worst")
    assert text.index("run 2") < text.index("run 0") < text.index("run 1")
    assert "87.0 %" in text
    assert '25.0 % <span class="soft">at 8/255</span>' in text
    assert 'title="top1, n = 300"' in text
    assert text.count('title="below_chance">invalid') == 2
    assert 'aria-sort="descending"><a href="/jobs?sort=worst">Worst case</a>' in text
    assert '<a href="/jobs?sort=seed">Seed</a>' in text
    assert (
        "<caption><span>Sorted by the radius at which 10&nbsp;% hold, then by the accuracy there.</span>"
        in text
    )
    narrow = page(api, "/jobs?columns=seed&columns=n&sort=seed")
    assert narrow.index("run 0") < narrow.index("run 1") < narrow.index("run 2")
    assert "Worst case</a>" not in narrow
    assert "Sorted by" not in narrow
    assert '<a href="/jobs?sort=-seed&amp;columns=seed&amp;columns=n">Seed</a>' in narrow
    assert "worst" in page(api, "/jobs?sort=wurst", 422)
    assert "clean" in page(api, "/jobs?columns=cleen", 422)


@pytest.mark.costly
def test_jobs_stand_in_groups_with_their_means(api: httpx.Client, app_store: Store, train_body: Make) -> None:
    for number in range(52):
        tags = ["first"] if number < 51 else ["second", "<b>"]
        answer = api.post("/api/v1/jobs", json=train_body(name=f"run {number:02d}", tags=tags))
        measured(app_store, answer.json()["id"], 0.25)
    text = page(api, "/jobs?group=tag&sort=created")
    assert "&lt;b&gt;" in text
    assert "51 jobs</span>" in text, "of a tag, which may have several data and metrics, no mean"
    assert "run 48" in text
    following = next(a["href"] for tag, a in Tags(text).found if tag == "a" and a.get("rel") == "next")
    assert following is not None
    last = page(api, following)
    assert "51 jobs</span>" in last
    assert last.index("run 50") < last.index("run 51")
    assert "no study" in page(api, "/jobs?group=study&tag=second")


def test_an_unknown_group_is_refused_by_its_name(api: httpx.Client) -> None:
    (detail,) = api.get("/jobs?group=studdy").json()["error"]["details"]
    assert (detail["loc"], detail["allowed"], detail["nearest"]) == (
        ["query", "group"], ["study", "arm", "tag"], "study",
    )  # fmt: skip


def test_the_cursor_of_a_page_with_the_longest_names_is_taken(
    api: httpx.Client, train_body: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.service.dashboard.jobs.PER_PAGE", 1)
    body = train_body(name="\U0001f600" * 200, tags=["\U0001f600" * 64])
    ids = {api.post("/api/v1/jobs", json=body).json()["id"] for _ in range(2)}
    first = page(api, "/jobs?group=tag&sort=name")
    (following,) = {a["href"] for tag, a in Tags(first).found if tag == "a" and a.get("rel") == "next"}
    assert following is not None
    assert len(following) > 4200
    pages = first, page(api, following)
    assert {job_id for job_id in ids if any(job_id in text for text in pages)} == ids


def act(api: httpx.Client, do: str, ids: list[str], path: str = "/jobs", **fields: str) -> httpx.Response:
    return api.post(path, data={"do": do, "job": ids, **fields}, headers=PAGE)


def test_chosen_jobs_are_canceled_and_deleted_and_the_page_says_which_are_not(
    api: httpx.Client, app_store: Store, train_body: Make
) -> None:
    ids = [api.post("/api/v1/jobs", json=train_body(name=f"run {n}")).json()["id"] for n in range(3)]
    assert "3 of 3 chosen jobs canceled." in act(api, "cancel", ids, "/jobs?sort=name&tag=none").text
    assert {app_store.jobs.get(job_id).state for job_id in ids} == {"canceled"}
    fresh = api.post("/api/v1/jobs", json=train_body(name="<i>new</i>")).json()["id"]
    text = act(api, "delete", [ids[0], fresh, "gone"]).text
    assert "1 of 3 chosen jobs deleted." in text
    assert "<bdi>&lt;i&gt;new&lt;/i&gt;</bdi>: it is queued: only a job" in text
    assert "<bdi>gone</bdi>: there is no job gone" in text
    assert {row.id for row in app_store.jobs.page()[0]} == {ids[1], ids[2], fresh}


def test_chosen_jobs_get_a_tag_and_keep_theirs(api: httpx.Client, app_store: Store, train_body: Make) -> None:
    ids = [api.post("/api/v1/jobs", json=train_body(tags=["old"])).json()["id"] for _ in range(2)]
    full = api.post("/api/v1/jobs", json=train_body(tags=[str(n) for n in range(32)])).json()["id"]
    text = act(api, "tag", [*ids, full], tag=" paper ").text
    assert "2 of 3 chosen jobs tagged." in text
    assert "32 tags" in text
    assert "2 of 2" in act(api, "tag", ids, tag="paper").text
    assert [row.tags for row in app_store.jobs.page(tag="paper")[0]] == [["old", "paper"]] * 2
    assert "2 of 2 chosen jobs untagged." in act(api, "untag", ids, tag="old").text
    assert [row.tags for row in app_store.jobs.page(tag="paper")[0]] == [["paper"]] * 2
    assert app_store.jobs.page(tag="old")[0] == []
    assert "2 of 2" in act(api, "tag", ids, tag="old").text
    tagged = act(api, "tag", ids, tag="old").text
    assert '<div class="notice" role="status"><strong>2 of 2 chosen jobs tagged.' in tagged
    for tag, told in (
        (" ", "a tag has 1 to 64 characters, and the field is empty."),
        ("x" * 65, "a tag has 1 to 64 characters, and the given tag has 65."),
    ):
        refusal = act(api, "tag", ids, tag=tag)
        assert refusal.status_code == 422
        assert f"No job is tagged: {told}" in refusal.text
        boxes = [attrs for name, attrs in Tags(refusal.text).found if attrs.get("name") == "job"]
        assert {box["value"] for box in boxes if "checked" in box} == {*ids}
    refusal = act(api, "tag", ids, tag="a\0b")
    assert refusal.status_code == 400
    assert "a text contains U+0000, which cannot be stored" in refusal.text
    assert api.post("/api/v1/jobs", json=train_body(tags=["a\0b"])).status_code == 400
    assert {len(app_store.jobs.get(job_id).tags) for job_id in ids} == {2}


def test_a_job_is_chosen_once_and_more_than_500_are_refused_before_any_is_touched(
    api: httpx.Client, app_store: Store, train_body: Make
) -> None:
    job_id = api.post("/api/v1/jobs", json=train_body()).json()["id"]
    refusal = act(api, "cancel", [",".join([job_id, *(f"x{number}" for number in range(500))])])
    assert refusal.status_code == 422
    assert "too many jobs are chosen" in refusal.text
    assert app_store.jobs.get(job_id).state == "queued"
    assert "1 of 1 chosen jobs canceled." in act(api, "cancel", [job_id] * 510).text


def test_chosen_jobs_are_compared_and_wrong_choices_refused(api: httpx.Client) -> None:
    answer = act(api, "compare", ["a", "b"])
    assert (answer.status_code, answer.headers["location"]) == (303, "/compare?jobs=a,b")
    for count, told in ((12, "12 are"), (1, "1 is"), (0, "none is")):
        answer = act(api, "compare", [f"job{number}" for number in range(count)])
        assert answer.status_code == 422
        assert f"A comparison has 2 to 10 jobs; {told} chosen." in answer.text
    assert "No job is chosen." in act(api, "cancel", []).text
    assert act(api, "retry", ["a"]).status_code == 422
    assert act(api, "", ["a"]).status_code == 422


def test_an_error_page_says_each_fault_once_and_what_is_allowed(api: httpx.Client) -> None:
    text = page(api, "/jobs?sort=foo", 422)
    assert text.count("unknown value") == 1
    assert "allowed: created, -created, name" in text
    text = page(api, "/jobs?state=foo&kind=foo", 422)
    assert (text.count("unknown state"), text.count("unknown kind")) == (1, 1)
