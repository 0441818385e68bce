"""Studies that the service extends by seeds: once for each look, however many processes look."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from assay.service.contract.limits import UNLIMITED, Limits
from assay.service.store.store import Store
from assay.service.store.tenants import View
from assay.service.studies import delivery
from assay.service.studies.delivery import StudyExtender, extend_one
from assay.service.studies.primary import look_at
from assay.service.studies.result_wire import StudyComparison
from assay.service.studies.store import Studies
from tests.service.studies.test_routes import STUDIES, posted

UNTIL = {"width": 0.5, "max_seeds": 8}
ASKED = {"primary": {"evaluation": "pgd"}, "until": UNTIL}


def finish(api: httpx.Client, worker: Any, study: str, share: float = 0.5, n: int = 200) -> None:
    """Trains and measures the runs that are open; the second arm is better by `share`."""
    for index, arm in enumerate(api.get(f"{STUDIES}/{study}").json()["runs"]):
        for run in arm["runs"]:
            if run["train_state"] == "queued":
                worker.train(run["train"])
            if run["evaluate_state"] in ("waiting", "queued"):
                draws = random.Random(f"{index}/{run['seed']}")
                right = [[int(draws.random() < 0.2 + share * index) for _ in range(n)] for _ in range(2)]
                worker.run(run["evaluate"], *right)


def seen(api: httpx.Client, study: str) -> tuple[str, list[int], str]:
    found = api.get(f"{STUDIES}/{study}").json()
    return found["state"], found["seeds"], found["until"]["state"]


def test_seeds_are_added_until_the_interval_is_narrow(
    api: httpx.Client, worker: Any, app_store: Store
) -> None:
    study = posted(api, seeds=2, **ASKED)["id"]
    assert not extend_one(app_store, UNLIMITED), "its first seeds have not ended"
    seeds = [0, 1]
    while True:
        finish(api, worker, study)
        assert seen(api, study) == ("running", seeds, "open"), "a look is to come"
        assert extend_one(app_store, UNLIMITED)
        if seen(api, study)[2] != "open":
            break
        seeds.append(len(seeds))
        assert seen(api, study) == ("running", seeds, "open")
        assert not extend_one(app_store, UNLIMITED), "its new seeds have not ended"
    assert seen(api, study) == ("succeeded", seeds, "precise")
    found = api.get(f"{STUDIES}/{study}/results").json()
    looks = found["until"]["looks"]
    assert [look["seeds"] for look in looks] == list(range(2, len(seeds) + 1))
    assert [look["ci_low"] is None for look in looks[:3]] == [True, True, False]
    assert looks[-1]["ci_high"] - looks[-1]["ci_low"] <= UNTIL["width"]
    assert all(look["ci_high"] - look["ci_low"] > UNTIL["width"] for look in looks[2:-1])
    one = next(one for cell in found["cells"] for one in cell["comparisons"] if one["primary"])
    assert (one["ci_method"], one["test"]["name"]) == ("anytime_t", "anytime_t")
    assert (one["ci_low"], one["ci_high"]) == (looks[-1]["ci_low"], looks[-1]["ci_high"])
    assert "anytime-valid p = " in found["primary"]["text"]
    said = f"looked at {len(looks)} times (after 2, 3, 4"
    assert found["until"]["text"].startswith(said)
    assert found["fixing"]["fixed"] == "before", "seeds that the rule adds are of the design"
    assert (found["fixing"]["reasons"], found["fixing"]["remarks"]) == ([], [])
    page = api.get(f"/studies/{study}", headers={"Accept": "text/html"}).text
    table = api.get(f"{STUDIES}/{study}/results", params={"format": "md"}).text
    rows = api.get(f"{STUDIES}/{study}/results", params={"format": "csv"}).text
    for text in (page, table):
        assert said in text
        assert "anytime-valid" in text
    assert ",anytime_t,anytime_t," in rows
    assert "two_way_t" not in rows
    assert "hierarchical_bootstrap" not in rows


def test_it_stops_at_the_most_seeds_and_can_be_extended_by_hand(
    api: httpx.Client, worker: Any, app_store: Store
) -> None:
    study = posted(
        api, seeds=[7, 9], primary=ASKED["primary"], until={"width": 1e-9, "max_seeds": 5, "step": 2}
    )
    for seeds in ([7, 9, 0, 1], [7, 9, 0, 1, 2]):
        finish(api, worker, study["id"])
        extend_one(app_store, UNLIMITED)
        assert seen(api, study["id"])[1] == seeds
    finish(api, worker, study["id"])
    extend_one(app_store, UNLIMITED)
    assert seen(api, study["id"]) == ("succeeded", [7, 9, 0, 1, 2], "max_seeds")
    assert "stopped at 5 seeds" in api.get(f"{STUDIES}/{study['id']}").json()["until"]["text"]
    api.post(f"{STUDIES}/{study['id']}/seeds", json={"seeds": [3]})
    finish(api, worker, study["id"])
    assert not extend_one(app_store, UNLIMITED)
    found = api.get(f"{STUDIES}/{study['id']}/results").json()
    assert found["primary"]["text"].count("anytime-valid") == 1
    assert found["fixing"]["fixed"] == "after", "a user's seed came after the first run"
    assert "seed 3 added at" in found["fixing"]["reasons"][0]


def test_a_canceled_study_is_not_extended_and_a_resumed_study_is(
    api: httpx.Client, worker: Any, app_store: Store
) -> None:
    study = posted(api, seeds=2, **ASKED)["id"]
    assert api.post(f"{STUDIES}/{study}/cancel").status_code == 202
    assert not extend_one(app_store, UNLIMITED)
    assert seen(api, study) == ("canceled", [0, 1], "canceled")
    assert api.post(f"{STUDIES}/{study}/retry").status_code == 202
    finish(api, worker, study)
    # Between its jobs' end and the look it can be canceled too, and is not deleted.
    assert api.delete(f"{STUDIES}/{study}").status_code == 409
    assert api.post(f"{STUDIES}/{study}/cancel").status_code == 202
    assert not extend_one(app_store, UNLIMITED)
    assert seen(api, study) == ("succeeded", [0, 1], "canceled")
    assert f"/studies/{study}/retry" in api.get(f"/studies/{study}", headers={"Accept": "text/html"}).text
    assert api.post(f"{STUDIES}/{study}/cancel").status_code == 409
    assert api.post(f"{STUDIES}/{study}/retry").status_code == 202
    assert extend_one(app_store, UNLIMITED)
    assert seen(api, study) == ("running", [0, 1, 2], "open")


def test_a_job_that_failed_stops_the_extension_with_its_name(
    api: httpx.Client, worker: Any, app_store: Store
) -> None:
    study = posted(api, seeds=2, **ASKED)
    job = study["runs"][0]["runs"][0]["train"]
    worker.fail(job)
    finish(api, worker, study["id"])
    assert not extend_one(app_store, UNLIMITED)
    found = api.get(f"{STUDIES}/{study['id']}").json()
    assert (found["state"], found["until"]["state"]) == ("failed", "open")
    assert f"no seed is added, as job {job} failed" in found["until"]["text"]


def test_many_processes_add_a_seed_once(api: httpx.Client, worker: Any, app_store: Store) -> None:
    study = posted(api, seeds=2, **ASKED)["id"]
    finish(api, worker, study)
    studies = Studies(app_store, View(None, everything=True))
    row = studies.get(study)
    look, state, reason, seeds = look_at(row.spec["until"], row.spec["seeds"], None)
    with ThreadPoolExecutor(4) as pool:
        done = list(
            pool.map(lambda _: studies.conclude(row, look, state, seeds=seeds, reason=reason), range(4))
        )
    assert sorted(done) == [False, False, False, True]
    assert seen(api, study)[1] == [0, 1, 2]


def test_a_look_of_a_dead_process_is_taken_by_another_after_a_minute(
    api: httpx.Client, worker: Any, app_store: Store
) -> None:
    study = posted(api, seeds=2, **ASKED)["id"]
    finish(api, worker, study)
    studies = Studies(app_store, View(None, everything=True))
    assert studies.claim_look() is not None
    assert studies.claim_look() is None
    with app_store._database.writing() as connection:
        connection.exec_driver_sql("UPDATE study_extensions SET claimed_until = claimed_until - 61")
    assert extend_one(app_store, UNLIMITED)
    assert seen(api, study)[1] == [0, 1, 2]


def test_a_full_queue_makes_it_wait(api: httpx.Client, worker: Any, app_store: Store) -> None:
    study = posted(api, seeds=2, **ASKED)["id"]
    finish(api, worker, study)
    tight = Limits(queued_jobs=3)
    assert extend_one(app_store, tight)
    assert seen(api, study) == ("running", [0, 1], "open")
    assert api.get(f"{STUDIES}/{study}").json()["until"]["looks"] == []


@pytest.fixture
def extending(app_store: Store) -> Iterator[StudyExtender]:
    extender = StudyExtender(lambda: app_store, UNLIMITED, seconds=0.02)
    yield extender
    extender.close()


@pytest.mark.usefixtures("extending")
def test_the_thread_extends_and_survives_errors(
    api: httpx.Client, worker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = iter([ValueError("once")])

    def failing(store: Store, limits: Limits) -> bool:
        for error in broken:
            raise error
        return extend_one(store, limits)

    monkeypatch.setattr(delivery, "extend_one", failing)
    study = posted(api, seeds=2, **ASKED)["id"]
    finish(api, worker, study)
    until = time.monotonic() + 60
    while seen(api, study)[1] != [0, 1, 2]:
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_look_without_an_interval_at_enough_seeds_stops() -> None:
    until = {"width": 0.1, "max_seeds": 9, "step": 3}
    found = StudyComparison(
        arm="a", baseline="b", compares="methods", difference=0.0, seeds=[0, 1, 2, 3], note="the same"
    )
    assert look_at(until, [0, 1, 2, 3], found)[1:] == ("failed", "no interval: the same", [])
    assert look_at(until, [0, 1], None)[1:] == ("open", "", [2, 3, 4])
    narrow = found.model_copy(update={"ci_low": -0.05, "ci_high": 0.05})
    assert look_at(until, [0, 1, 2, 3], narrow)[1:] == ("precise", "", [])
    wide = found.model_copy(update={"ci_low": -0.05, "ci_high": 0.06})
    assert look_at(until, [0, 1, 2, 3, 4, 5, 6, 8], wide)[1:] == ("open", "", [7])
