"""Registered designs in the store, on SQLite and on PostgreSQL."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import update

from assay.service.contract.errors import InvalidState, NotFound, TooManyRequests
from assay.service.contract.times import iso
from assay.service.store.audit import Actor, AuditFilter
from assay.service.store.store import Store
from assay.service.store.tenant_tables import study_designs
from assay.service.studies.designs import store as designs
from assay.service.studies.designs.digest import design_of, digest_of
from assay.service.studies.designs.fixing import CHANGED, fixing_of
from assay.service.studies.designs.rows import DesignRow
from tests.service.store.conftest import *  # noqa: F403 (fixtures)
from tests.service.studies.test_store import TEMPLATES, spec, studies, template, work

ARMS: Any = TEMPLATES
LABELS = {"tags": ["t"], "priority": 5, "timeout_seconds": None, "arms": [{"name": "one"}, {"name": "other"}]}
SPEC = spec([0, 1], **LABELS)
DIGEST = digest_of(design_of(SPEC, ARMS))


def registered(
    store: Store, tenant: str | None = "ann", by: Actor | None = None, **changes: Any
) -> DesignRow:
    return studies(store, tenant, by=by).register(SPEC | changes, ARMS)[0]


def posted(store: Store, tenant: str = "ann", seeds: list[int] | None = None) -> Any:
    given = SPEC if seeds is None else SPEC | {"seeds": seeds}
    digest = digest_of(design_of(given, ARMS))
    return studies(store, tenant).add(given, ARMS, body_sha256="s", design=digest)[0]


def fixing(store: Store, study_id: str) -> Any:
    found = fixing_of(studies(store).get(study_id))
    assert found is not None
    return found


def test_a_design_keeps_its_first_time_for_all_who_register_it_at_once(store: Store) -> None:
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: studies(store, "ann").register(SPEC, ARMS), range(4)))
    assert sorted(created for _, created in made) == [False, False, False, True]
    assert len({row.created_at for row, _ in made}) == 1
    assert registered(store, name="another label").labels["name"] == "s"
    assert store.jobs.page()[0] == []
    assert made[0][0].sha256 == DIGEST
    assert made[0][0].spec == {
        **design_of(SPEC, ARMS),
        **{name: SPEC[name] for name in made[0][0].labels},
    }


def test_tenants_see_their_own(store: Store) -> None:
    row = registered(store)
    with pytest.raises(NotFound, match=f"no registered design sha256:{DIGEST}"):
        studies(store, "bob").design(DIGEST)
    with pytest.raises(NotFound, match=f"no registered design sha256:{DIGEST}"):
        studies(store, "bob").delete_design(DIGEST)
    assert studies(store, "bob").designs() == ([], None)
    assert studies(store).design(DIGEST) == row, "an administrator"
    with pytest.raises(NotFound):
        studies(store).design(DIGEST, own=True)
    assert fixing(store, posted(store, "bob").id).registered_at is None
    assert registered(store, "bob").created_at > row.created_at
    with pytest.raises(NotFound):
        studies(store, "ann").design("\0" * 64)


def test_a_study_names_its_design_and_keeps_it(store: Store) -> None:
    row = registered(store)
    first, second = posted(store), posted(store)
    found = fixing(store, first.id)
    assert (found.fixed, found.design, found.number, found.reasons) == ("before", DIGEST, 1, [])
    assert found.fixed_at == found.registered_at
    assert found.text.startswith("fixed before the first run: registered at ")
    assert fixing(store, second.id).text.endswith(f"as sha256:{DIGEST}, study 2 of the design")
    assert studies(store, "ann").design("sha256:" + DIGEST).studies == [first.id, second.id]
    with pytest.raises(InvalidState, match=f"study {first.id} was posted from the design"):
        studies(store, "ann").delete_design(DIGEST)
    for study in (first, second):
        studies(store, "ann").cancel(study.id)
        studies(store, "ann").delete(study.id)
    studies(store, "ann").delete_design(row.sha256)
    assert studies(store, "ann").designs() == ([], None)


def test_equal_trainings_that_had_begun_are_earlier_runs(store: Store) -> None:
    """A study of the same trainings ran before: another one is fixed after, one that only waited is not."""
    waiting = posted(store, seeds=[1])
    assert fixing(store, waiting.id).fixed == "before"
    assert fixing(store, posted(store).id).fixed == "before"
    work(store)
    late = fixing(store, posted(store).id)
    assert late.fixed == "after"
    first = store.jobs.get(next(run.job_id for run in waiting.runs if run.role == "train"))
    assert first.started_at is not None
    told = f"runs had begun before: arm 'one', seed 1 (job {first.id}, {iso(first.started_at)}), arm '"
    assert late.reasons[0].startswith(told)
    assert late.reasons[0].endswith(", and 1 more")
    assert "fixed after the first run: stored with the study at " in late.text
    assert fixing(store, posted(store, seeds=[5]).id).fixed == "before", "other seeds are pilots"
    assert fixing(store, posted(store, "bob").id).fixed == "before", "another tenant's runs are not told"
    assert registered(store).earlier == late.reasons
    assert fixing(store, posted(store).id).fixed == "after", "registered too late"


def test_evaluations_of_given_weights_are_earlier_runs_with_any_seed(store: Store) -> None:
    given: Any = [template("given", trained=False)]
    clean = {"name": "clean", "params": {}, "data": None}
    given[0]["evaluate"] |= {"evaluations": [clean], "protocol": "pixel"}
    earlier = {**given[0]["evaluate"], "seed": 9}
    job = store.jobs.add(earlier, body_sha256="j", tenant="ann")[0].id
    other = {**earlier, "evaluations": [{**clean, "name": "fgsm"}]}
    store.jobs.add(other, body_sha256="o", tenant="ann")
    alone = SPEC | {"arms": [{"name": "given"}], "baseline": "given"}
    assert studies(store, "ann").register(alone, given)[0].earlier == []
    work(store)
    (told,) = studies(store, "ann").register(alone | {"seeds": [5]}, given)[0].earlier
    assert f"evaluation of the weights of arm 'given' (job {job}, " in told


def test_runs_after_the_registration_leave_it_before(store: Store) -> None:
    registered(store)
    posted(store)
    work(store)
    assert fixing(store, posted(store).id).fixed == "before"


def test_seeds_added_before_the_first_run_and_after_it(store: Store) -> None:
    study = posted(store)
    studies(store, "ann").extend(study.id, [7])
    found = fixing(store, study.id)
    assert (found.fixed, found.reasons) == ("before", [])
    assert "seed 7 added at " in found.remarks[0]
    assert found.fixed_at > fixing(store, posted(store, seeds=[9]).id).fixed_at[:4]
    work(store)
    studies(store, "ann").extend(study.id, [7, 8])
    found = fixing(store, study.id)
    assert found.fixed == "after"
    assert found.reasons[0].startswith("seed 8 added at ")
    assert found.text.startswith("fixed after the first run (its added seeds alone): ")
    assert found.reasons[0].endswith(", after the first run")


def test_a_changed_design_is_refused_and_a_changed_study_is_told(store: Store) -> None:
    registered(store)
    study = posted(store)
    other = design_of(SPEC | {"baseline": "other"}, ARMS)
    with store._database.writing() as connection:
        connection.execute(update(study_designs).values(design=other))
    with pytest.raises(InvalidState, match=f"the stored design sha256:{DIGEST} was changed"):
        studies(store, "ann").design(DIGEST)
    row = studies(store).get(study.id)
    row.spec["baseline"] = "other"
    found = fixing_of(row)
    assert found is not None
    assert (found.fixed, found.reasons) == ("after", [CHANGED])


def test_studies_of_earlier_versions_say_nothing(store: Store) -> None:
    old = studies(store, "ann").add(SPEC, ARMS, body_sha256="s")[0]
    assert fixing_of(old) is None
    assert fixing_of(studies(store, "ann").extend(old.id, [5])[0]) is None


def test_designs_are_paged_limited_and_audited(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    by = Actor(tenant="ann", key="k")
    first = registered(store, by=by)
    second = registered(store, by=by, seeds=[3])
    rows, cursor = studies(store, "ann").designs(limit=1)
    assert [row.sha256 for row in rows] == [second.sha256]
    rows, cursor = studies(store, "ann").designs(limit=1, cursor=cursor)
    assert ([row.sha256 for row in rows], cursor) == ([first.sha256], None)
    monkeypatch.setattr(designs, "MAX_DESIGNS", 2)
    with pytest.raises(TooManyRequests, match="2 designs are registered, at most 2"):
        registered(store, seeds=[4])
    registered(store)
    registered(store, "bob", seeds=[4])
    studies(store, "ann", by=by).delete_design(first.sha256)
    entries = [one for one in store.audit.page(AuditFilter(tenant="ann"))[0] if "design" in one.action]
    assert [(one.action, one.object) for one in entries] == [
        ("design.delete", first.sha256),
        ("design.register", second.sha256),
        ("design.register", first.sha256),
    ]
