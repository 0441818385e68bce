"""Pages of jobs and of the whole service, without a browser."""

from __future__ import annotations

import html
import json
import time
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import httpx
import pytest

from assay.service.api.health import Readiness
from assay.service.contract.warning_codes import SEVERITIES
from assay.service.dashboard.formats import duration, short, size
from assay.service.dashboard.live import LiveStates
from assay.service.dashboard.overview import fleet_problems
from assay.service.store.store import Store
from assay.service.store.tenants import TenantJobs, TenantStore, View

Make = Callable[..., dict[str, Any]]
PAGE = {"Accept": "text/html"}
PAGES = ("/", "/jobs", "/workers")
# What may be in a name.
NAMES = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{ 7 * 7 }}",
    "\u202egnihtemos",
    "\x00\x1b[31m",
    "🙂" * 100,
    "x" * 1000,
)


class Tags(HTMLParser):
    """Attributes of every tag of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def page(api: httpx.Client, path: str, status: int = 200) -> str:
    answer = api.get(path, headers=PAGE)
    assert answer.status_code == status, answer.text[:500]
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    return answer.text


@pytest.mark.parametrize("path", PAGES)
def test_a_page_has_a_strict_policy_and_nothing_inline(api: httpx.Client, path: str) -> None:
    answer = api.get(path, headers=PAGE)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for tag, attributes in Tags(answer.text).found:
        assert "style" not in attributes, tag
        assert not [name for name in attributes if name.startswith("on")], tag
        if tag == "script":
            assert (attributes.get("src") or "").startswith("/static/")
        address = attributes.get("href") or attributes.get("src") or ""
        assert not address.startswith(("http:", "https:", "//", "javascript:")), address


@pytest.mark.parametrize("name", NAMES)
def test_no_name_breaks_a_page(api: httpx.Client, train_body: Make, name: str) -> None:
    name = name.replace("\x00", "")
    assert api.post("/api/v1/jobs", json=train_body(name=name[:200], tags=[name[:60]])).status_code == 201
    for path in ("/", "/jobs"):
        text = page(api, path)
        assert len([tag for tag, _ in Tags(text).found if tag == "script"]) == 1
        assert "<img src=x" not in text
        assert ">49<" not in text


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


def test_what_is_not_there_is_a_page_for_a_browser_and_json_for_a_program(api: httpx.Client) -> None:
    assert "no route" in page(api, "/nothing", 404)
    assert api.get("/nothing").json()["error"]["type"] == "not_found"
    assert api.get("/api/v1/nothing", headers=PAGE).json()["error"]["type"] == "not_found"


def test_static_files_are_kept_by_browsers_and_nothing_else_is_served(api: httpx.Client) -> None:
    text = page(api, "/")
    addresses = [a["href"] for tag, a in Tags(text).found if tag == "link"]
    assert len(addresses) == 2
    for address in addresses:
        answer = api.get(str(address))
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
    for name in ("..%2Fframe.py", "frame.py", "%00", "nothing.css", "%2e%2e"):
        assert api.get(f"/static/{name}").status_code == 404


def test_pages_are_compressed_for_those_who_take_it(api: httpx.Client) -> None:
    assert api.get("/", headers={**PAGE, "Accept-Encoding": "gzip"}).headers["content-encoding"] == "gzip"
    assert "content-encoding" not in api.get("/", headers={**PAGE, "Accept-Encoding": "br"}).headers


def test_the_overview_shows_states_results_and_the_queue(
    api: httpx.Client, worker: Any, train_body: Make, evaluate_body: Make
) -> None:
    done = api.post("/api/v1/jobs", json=evaluate_body(name="measured")).json()["id"]
    worker.run(done, [1, 1, 0, 1], [1, 0, 0, 1])
    api.post("/api/v1/jobs", json=train_body(name="next one"))
    text = page(api, "/")
    assert "measured" in text
    assert "75.0 %" in text
    assert "next one" in text
    assert "No worker is online" in text


def test_live_states_of_jobs_end_with_the_jobs(api: httpx.Client, train_body: Make) -> None:
    job_id = api.post("/api/v1/jobs", json=train_body()).json()["id"]
    api.post(f"/api/v1/jobs/{job_id}/cancel")
    answer = api.get(f"/live?jobs={job_id}")
    assert answer.headers["content-type"].startswith("text/event-stream")
    data = [line[6:] for line in answer.text.splitlines() if line.startswith("data: ")]
    state = json.loads(data[0])[0]
    assert (state["id"], state["state"], state["ended"]) == (job_id, "canceled", True)
    assert state["speed"] == ""
    assert answer.text.rstrip().endswith("data: {}")


def test_live_states_of_unknown_or_too_many_jobs_are_refused(api: httpx.Client) -> None:
    assert api.get(f"/live?jobs={'0' * 26}").status_code == 404
    assert api.get("/live?jobs=" + ",".join(f"{i:026d}" for i in range(51))).status_code == 422
    assert api.get("/live").status_code == 422


def test_the_problems_of_a_fleet_are_told(app_store: Store) -> None:
    def ready(**changes: Any) -> Readiness:
        return Readiness.model_validate(
            {"redis": "unused", "artifacts": "writable", "workers_online": {"auto": 1}} | changes
        )

    assert fleet_problems(ready(), waiting=3) == []
    assert fleet_problems(ready(workers_online={}), waiting=3) == [
        "No worker is online, and 3 jobs wait for one."
    ]
    wrong = ready(
        redis="away",
        artifacts="not_writable",
        workers_with_another_catalog=1,
        containment_missing={"seccomp": 2},
        workers_refusing=2,
        unfit={"cuda: no driver": 1},
        workers_cordoned=1,
        workers_unfit=1,
        workers_unknown={"identity b2 (version 1.0) waits for an administrator": 2},
        data_disagreements=["cifar10: ab on 1 workers; cd on 2 workers"],
    )
    told = fleet_problems(wrong, waiting=0)
    assert len(told) == 10
    assert "Workers have a data set with several contents: cifar10: ab on 1 workers; cd on 2 workers." in told
    assert "2 workers take no jobs: identity b2 (version 1.0) waits for an administrator." in told


def test_values_are_written_as_people_read_them() -> None:
    assert [duration(x) for x in (None, 1.25, 59.6, 3600, 3725)] == [
        "-",
        "1.2 s",
        "1 min 0 s",
        "1 h 0 min",
        "1 h 2 min",
    ]
    assert [size(x) for x in (0, 999, 1500, 2_500_000, 5 * 10**12)] == [
        "0 B",
        "999 B",
        "1.5 kB",
        "2.5 MB",
        "5000.0 GB",
    ]
    assert short("a\nb\x1b" + "c" * 100, 5) == "a b …"
    assert SEVERITIES[0] == "invalid"


def test_a_job_that_was_retried_is_not_told_to_have_ended(
    api: httpx.Client, transport: Any, train_body: Make, app_store: Store
) -> None:
    job_id = api.post("/api/v1/jobs", json=train_body()).json()["id"]
    api.post(f"/api/v1/jobs/{job_id}/cancel")
    states, store = LiveStates(), TenantStore(app_store, View(None, everything=True))
    assert states.of(store, [job_id])[0]["state"] == "canceled"
    api.post(f"/api/v1/jobs/{job_id}/retry")
    assert states.of(store, [job_id])[0]["state"] == "canceled", "the premise: it is remembered for a second"
    assert states.of(store, [job_id], since=time.monotonic())[0]["state"] == "queued"


def test_a_job_that_changes_its_state_meanwhile_is_shown_once(
    api: httpx.Client, train_body: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = api.post("/api/v1/jobs", json=train_body()).json()["id"]
    listed = TenantJobs.page

    def moving(self: TenantJobs, **wanted: Any) -> Any:
        busy = wanted.get("state") in ("running", "canceling")
        return listed(self, **{**wanted, "state": "queued"} if busy else wanted)

    monkeypatch.setattr(TenantJobs, "page", moving)
    running = page(api, "/").partition('id="running"')[2].partition("</section>")[0]
    assert running.count(f'href="/jobs/{job_id}"') == 1


def test_recent_results_say_how_many_are_not_shown(
    api: httpx.Client, worker: Any, evaluate_body: Make
) -> None:
    attacks = [{"name": "pgd", "params": {"epsilon": f"{number}/255"}} for number in range(1, 5)]
    body = evaluate_body(evaluations=[{"name": "clean"}, *attacks])
    worker.run(str(api.post("/api/v1/jobs", json=body).json()["id"]), *[[1, 0]] * 5)
    assert "and 2 more" in api.get("/", headers={"Accept": "text/html"}).text


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
        app_store.workers.beat(worker, "vm", ["cpu"], 16578, {}, 1, name=f"vm:{number}")
    text = api.get("/workers", headers=PAGE).text
    assert '<span class="id">vm:0</span>' in text
    assert '<span class="id">vm:1</span>' in text
    assert text.count('<td data-label="State">online</td>') == 2
    assert text.count('<td data-label="Job">') == 2


def test_an_unknown_state_is_refused_with_those_that_there_are(api: httpx.Client) -> None:
    answer = api.get("/jobs?state=foo", headers=PAGE)
    assert answer.status_code == 422
    assert "allowed: queued, waiting" in answer.text or "allowed: waiting, queued" in answer.text
    assert "succeeded" in answer.text.partition("allowed: ")[2].partition("</p>")[0]
