"""The page of the whole service: states, results, queue and the problems of a fleet."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from assay.service.api.health import Readiness
from assay.service.contract.summaries import JobSummary, SummaryValue
from assay.service.dashboard.overview import fleet_problems
from assay.service.store.row_mapping import summary_columns
from assay.service.store.store import Store
from assay.service.store.tenants import TenantJobs
from tests.support.pages import page

Make = Callable[..., dict[str, Any]]


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


def test_recent_results_are_clean_and_worst_case(
    api: httpx.Client, app_store: Store, worker: Any, evaluate_body: Make
) -> None:
    attacks = [{"name": "pgd", "params": {"epsilon": f"{number}/255"}} for number in range(1, 5)]
    body = evaluate_body(evaluations=[{"name": "clean"}, *attacks])
    done = str(api.post("/api/v1/jobs", json=body).json()["id"])
    worker.run(done, *[[1, 0]] * 5)
    assert "and 2 more" in recent(api), "without a summary the first numbers are shown"
    clean, worst = (SummaryValue(metric="top1", value=0.5, n=2, at=at) for at in ("", "4/255"))
    app_store.jobs.summarise(done, summary_columns(JobSummary(clean=clean, worst=worst)))
    assert "digits clean 50.0 % n = 2 worst case at 4/255 50.0 % n = 2 2" in recent(api)


def recent(api: httpx.Client) -> str:
    text = page(api, "/").partition('id="recent"')[2]
    return " ".join(re.sub(r"<[^>]*>", " ", text).split())


def test_invalid_numbers_are_marked(
    api: httpx.Client, app_store: Store, worker: Any, evaluate_body: Make
) -> None:
    done = api.post("/api/v1/jobs", json=evaluate_body(name="measured")).json()["id"]
    worker.run(done, [1, 1, 0, 1], [1, 0, 0, 1])
    marked = '<a href="/warnings#below_chance"><code>below_chance</code></a>'
    assert marked not in page(api, "/")
    app_store.jobs.summarise(done, summary_columns(JobSummary(invalid=["below_chance"])))
    assert marked in page(api, "/")
