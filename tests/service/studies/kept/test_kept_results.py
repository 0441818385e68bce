"""Results of ended studies: made once, and made again whenever something they follow from has changed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import httpx
import pytest
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from assay.service.contract.errors import NoResults
from assay.service.contract.limits import UNLIMITED
from assay.service.store.store import Store
from assay.service.store.tenants import TenantStore, View
from assay.service.studies.kept import kept_results
from assay.service.studies.kept.kept_results import keep_one, kept_results_of
from assay.service.studies.kept.kept_texts import KeptTexts
from assay.service.studies.store import Studies
from assay.service.studies.stored_results import results_of
from tests.service.studies.test_pages import finish, page, posted


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The studies whose results were made."""
    found: list[str] = []

    def counted(store: TenantStore, study: Any) -> Any:
        found.append(study.id)
        return results_of(store, study)

    monkeypatch.setattr(kept_results, "results_of", counted)
    return found


@pytest.fixture
def view(app_store: Store) -> TenantStore:
    return TenantStore(app_store, View(None, everything=True), UNLIMITED)


def test_the_service_makes_them_once_when_a_study_ends(
    api: httpx.Client, worker: Any, view: TenantStore, made: list[str]
) -> None:
    study = posted(api)
    keep_one(view, Counter())
    assert made == [], "it has not ended"
    finish(api, worker, study)
    for _ in range(3):
        keep_one(view, Counter())
    assert made == [study["id"]]
    row = view.features.of(Studies).get(study["id"])
    assert kept_results_of(view, row) == results_of(view, row)
    links = study["links"]
    assert api.get(links["results"]).json() == results_of(view, row).model_dump(mode="json")
    assert "two-way t" in page(api, f"/studies/{study['id']}")
    assert made == [study["id"]], "the answer and the page take what is kept"


def test_a_deleted_job_and_more_seeds_make_them_again(
    api: httpx.Client, worker: Any, view: TenantStore, made: list[str]
) -> None:
    study = posted(api)
    finish(api, worker, study)
    first = api.get(study["links"]["results"]).json()
    api.delete(f"/api/v1/jobs/{study['runs'][0]['runs'][1]['evaluate']}")
    second = api.get(study["links"]["results"]).json()
    assert (first["complete"], second["complete"]) == (True, False)
    assert len(made) == 2
    more = api.post(f"{study['links']['self']}/seeds", json={"seeds": [7]}).json()
    third = api.get(study["links"]["results"]).json()
    assert third["seeds"] == [0, 1, 7]
    assert len(made) == 3, "a study that has not ended has none"
    assert more["state"] == "running"


def test_other_code_makes_them_again(
    api: httpx.Client, worker: Any, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    study = posted(api)
    finish(api, worker, study)
    for code, count in (("1", 1), ("1", 1), ("2", 2), (None, 3), (None, 4), ("2", 4)):
        monkeypatch.setattr(kept_results, "_code", lambda code=code: code)
        assert api.get(study["links"]["results"]).status_code == 200
        assert len(made) == count


def test_a_study_without_results_is_tried_once(api: httpx.Client, view: TenantStore, made: list[str]) -> None:
    study = posted(api)
    api.post(f"{study['links']['self']}/cancel")
    for _ in range(3):
        keep_one(view, Counter())
    assert made == [study["id"]]
    assert api.get(study["links"]["results"]).status_code == 409
    with pytest.raises(NoResults):
        kept_results_of(view, view.features.of(Studies).get(study["id"]))


def test_what_cannot_be_kept_is_still_told(
    api: httpx.Client, worker: Any, view: TenantStore, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    study = posted(api)
    finish(api, worker, study)

    def full(*_: Any) -> None:
        raise OperationalError("insert", {}, Exception("the disk is full"))

    with monkeypatch.context() as patched:
        patched.setattr(KeptTexts, "keep_text", full)
        assert api.get(study["links"]["results"]).json()["complete"]
    tries: Counter[str] = Counter()
    with monkeypatch.context() as patched:
        patched.setattr(KeptTexts, "keep_text", full)
        for _ in range(5):
            keep_one(view, tries)
    assert len(made) == 1 + kept_results.MAX_TRIES, "a full disk costs no more than a few tries"
    made.clear()
    with monkeypatch.context() as patched:
        patched.setattr(kept_results, "_text", lambda _: kept_results.NOTHING)
        keep_one(view, Counter())
    keep_one(view, Counter())
    assert len(made) == 1, "results that JSON does not give back are not tried again"
    assert api.get(study["links"]["results"]).json()["complete"]
    assert len(made) == 2


def test_a_merge_after_the_end_makes_them_again(
    api: httpx.Client, worker: Any, app_store: Store, made: list[str]
) -> None:
    """A worker may still merge an evaluation of a job that has ended."""
    study = posted(api)
    finish(api, worker, study)
    before = api.get(study["links"]["results"]).json()
    job = study["runs"][1]["runs"][0]["evaluate"]
    merged = app_store.results.of(job)[0]
    app_store.results.save(job, 0, merged | {"seconds": 123.0})
    assert api.get(study["links"]["results"]).json() == before
    assert len(made) == 2


def test_a_study_that_waits_for_more_seeds_has_not_ended(
    api: httpx.Client, worker: Any, view: TenantStore, made: list[str]
) -> None:
    older = posted(api)
    finish(api, worker, older)
    study = posted(api, name="until", primary={"evaluation": "clean"}, until={"width": 0.5, "max_seeds": 8})
    finish(api, worker, study)
    for _ in range(3):
        keep_one(view, Counter())
    assert made == [older["id"]], "nor does it keep others waiting"


def test_an_error_that_passes_is_not_kept(
    api: httpx.Client, worker: Any, view: TenantStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = posted(api)
    finish(api, worker, study)

    def fails(*_: Any) -> None:
        raise PoolTimeout

    with monkeypatch.context() as patched:
        patched.setattr(kept_results, "results_of", fails)
        with pytest.raises(PoolTimeout):
            keep_one(view, Counter())
    keep_one(view, Counter())
    row = view.features.of(Studies).get(study["id"])
    monkeypatch.setattr(kept_results, "results_of", fails)
    assert kept_results_of(view, row).complete
