from __future__ import annotations

from collections.abc import Iterator

import pytest
from alembic import command
from sqlalchemy import select, text

from assay.service.contract.summaries import JobSummary, SummaryValue
from assay.service.store.database import Database
from assay.service.store.row_mapping import summary_columns
from assay.service.store.store import Store, open_store
from assay.service.store.tables import jobs, shards
from assay.service.store.upgrade import configuration, upgrade
from tests.support.jobs import add, claim, evaluate_spec, outcome, states, succeeded, train_spec
from tests.support.simulation import submit_many


@pytest.fixture
def database(empty_database_url: str) -> Iterator[Database]:
    """A database without tables."""
    opened = Database(empty_database_url)
    yield opened
    opened.close()


def test_jobs_and_idempotency_keys_outlive_the_revision_of_keys(database: Database) -> None:
    known = "SELECT key, body_sha256, job_id FROM idempotency_keys ORDER BY job_id"
    upgrade(database)
    with Store(database) as store:
        first = store.jobs.add(evaluate_spec(), body_sha256="a", idempotency_key="k", tenant="one")[0].id
        store.jobs.add(evaluate_spec(), body_sha256="b", idempotency_key="k", tenant="two")
        other = store.jobs.add(evaluate_spec(), body_sha256="c", idempotency_key="l")[0].id
        with database.writing() as connection:
            command.downgrade(configuration(connection), "0001")
            rows = [tuple(row) for row in connection.exec_driver_sql(known)]
            assert rows == [("k", "a", first), ("l", "c", other)]
        upgrade(database)
        assert [
            store.jobs.add(evaluate_spec(), body_sha256=body, idempotency_key=key)[0].id
            for body, key in (("a", "k"), ("c", "l"))
        ] == [first, other]


def test_needed_weights_outlive_the_revision_of_dependencies(database: Database) -> None:
    column = "SELECT id, depends_on FROM jobs WHERE depends_on IS NOT NULL ORDER BY id"
    upgrade(database)
    with Store(database) as store:
        one, other = add(store, train_spec()), add(store, train_spec())
        plain = add(store, evaluate_spec())
        both = add(store, evaluate_spec(weights_from=other, attacks_from=[one]))
        attacking = add(store, evaluate_spec(attacks_from=[one, one]))
        with database.writing() as connection:
            command.downgrade(configuration(connection), "0004")
            assert [tuple(row) for row in connection.execute(text(column))] == [(both, other)]
        upgrade(database)
        succeeded(store, store.jobs.get(one))
        assert states(store, plain, both, attacking) == ["queued", "waiting", "queued"]
        succeeded(store, store.jobs.get(other))
        assert states(store, both) == ["queued"]


def test_older_versions_know_nothing_of_checkpoints(database: Database) -> None:
    upgrade(database)
    with Store(database) as store:
        job_id = add(store, evaluate_spec())
        row = {"model": {"name": "vit", "params": {}}, "sha256": "a", "size": 1, "tenant": None}
        store.checkpoints.add("ours", **row, place=lambda job_id: None)
        with database.writing() as connection:
            command.downgrade(configuration(connection), "0005")
            assert [row.id for row in connection.execute(text("SELECT id FROM jobs"))] == [job_id]
        upgrade(database)
        assert store.checkpoints.page(tenant=None) == ([], None)


def test_shards_of_before_fairness_belong_to_their_jobs_tenants(database_url: str) -> None:
    """One that runs meanwhile was claimed at an unknown time: it costs nothing and ends as ever."""
    with open_store(database_url) as store:
        submit_many(store, "alice", 2)
        submit_many(store, None, 1)
        held = claim(store)
        with store._database.writing() as connection:
            command.downgrade(configuration(connection), "0008")
        upgrade(store._database)
        with store._database.reading() as connection:
            rows = connection.execute(select(shards.c.tenant, shards.c.claimed_at)).all()
            assert sorted(row.tenant for row in rows) == ["", "alice", "alice"]
            assert {row.claimed_at for row in rows} == {None}
        assert store.shards.finish(held, outcome(held)) is not None
        assert len({claim(store).job_id for _ in range(2)}) == 2


def test_jobs_of_earlier_versions_get_their_names_as_a_column(database: Database) -> None:
    upgrade(database)
    store = Store(database)
    names = ["first", "", "\u202e<b>", "x" * 200]
    made = [add(store, evaluate_spec(name=name)) for name in names]
    with database.writing() as connection:
        command.downgrade(configuration(connection), "0012")
    upgrade(database)
    with database.reading() as connection:
        found = dict(connection.execute(select(jobs.c.id, jobs.c.name)).all())
    assert [found[job_id] for job_id in made] == names


def test_jobs_of_earlier_versions_get_their_seeds_as_a_column(database: Database) -> None:
    upgrade(database)
    store = Store(database)
    seeds = [0, 3, 2**63 - 1]
    made = [add(store, evaluate_spec(seed=seed, name="\0\ud800")) for seed in seeds]
    others = [add(store, evaluate_spec()) for _ in range(3)]
    with database.writing() as connection:
        command.downgrade(configuration(connection), "0024")
        for job_id, spec in zip(others, ('{"seed":"7"}', f'{{"seed":{2**63}}}', "{}"), strict=True):
            connection.execute(
                text("UPDATE jobs SET spec = :spec WHERE id = :id"), {"spec": spec, "id": job_id}
            )
    upgrade(database)
    with database.reading() as connection:
        found = dict(connection.execute(select(jobs.c.id, jobs.c.seed)).all())
    assert [found[job_id] for job_id in (*made, *others)] == [*seeds, None, None, None]
    assert store.jobs.get(made[0]).summary is None


def test_worst_cases_of_earlier_versions_are_summarised_again(database: Database) -> None:
    """Workers do it: earlier summaries have no radius."""
    upgrade(database)
    store = Store(database)
    values = (SummaryValue(metric="top1", value=0.3, n=9, at="2/255"), None)
    made = [add(store, evaluate_spec()) for _ in values]
    for job_id, worst in zip(made, values, strict=True):
        store.jobs.summarise(job_id, summary_columns(JobSummary(worst=worst)))
    with database.writing() as connection:
        command.downgrade(configuration(connection), "0034")
    upgrade(database)
    assert [store.jobs.get(job_id).summary is None for job_id in made] == [True, False]
