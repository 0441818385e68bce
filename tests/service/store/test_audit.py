"""The audit: rows are written with what they tell of, chained, and never changed."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import literal, text
from sqlalchemy.exc import DBAPIError

from assay.service.contract.audit import AuditEntry, Chain, chain_of
from assay.service.contract.errors import InvalidState
from assay.service.contract.limits import TenantSettings
from assay.service.contract.verbs import VERBS
from assay.service.store import audit as audit_module
from assay.service.store.audit import Actor, AuditFilter, record, session_mark
from assay.service.store.store import Store
from assay.service.store.tenants import TenantStore, View
from tests.support.databases import ALWAYS_ON_BOTH
from tests.support.jobs import evaluate_spec

DAY = 86400
ALICE = Actor(tenant="alice", key="a" * 8, address="192.0.2.1", request="r1")
ADMIN = Actor(tenant="ops", key="b" * 8, address="192.0.2.2")
EVERYTHING = AuditFilter()
CANCEL, RETRY, _, DELETE = VERBS
Clock = Callable[[float], None]


def entries(store: Store, wanted: AuditFilter = EVERYTHING) -> list[AuditEntry]:
    return [entry for chunk in store.audit.chunks(wanted, until=store.audit.newest()) for entry in chunk]


def told(found: Sequence[AuditEntry]) -> list[tuple[str, str | None, dict[str, Any]]]:
    return [(entry.action, entry.object, entry.detail) for entry in found]


def raw(store: Store, *statements: str) -> None:
    """Runs SQL as the application itself may."""
    with store._database.writing() as connection:
        for statement in statements:
            connection.execute(text(statement))


def unguarded(store: Store, *statements: str) -> None:
    """Runs SQL as an intruder who owns the database and takes the triggers away."""
    if store._database.file is None:
        drop = ["ALTER TABLE audit DISABLE TRIGGER USER"]
        again = ["ALTER TABLE audit ENABLE TRIGGER USER"]
    else:
        drop = [f"DROP TRIGGER audit_no_{what}" for what in ("update", "delete", "replace")]
        again = []
    raw(store, *drop, *statements, *again)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Sets the time at which rows are written."""
    return lambda seconds: monkeypatch.setattr(audit_module, "now", lambda: literal(seconds))


@pytest.fixture
def alice(store: Store) -> TenantStore:
    return TenantStore(store, View("alice", everything=False), by=ALICE)


def test_tags_that_change_are_in_the_audit(store: Store, alice: TenantStore) -> None:
    job = alice.jobs.add(evaluate_spec(), body_sha256="a")[0].id
    alice.jobs.tag(job, ["paper"], ["x"])
    TenantStore(store, View("ops", everything=True), by=ADMIN).jobs.tag(job, remove=["paper"])
    assert told(entries(store, AuditFilter(action="job.tag"))) == [
        ("job.tag", job, {"add": ["paper"], "remove": ["x"]}),
        ("job.tag", job, {"remove": ["paper"], "tenant": "alice"}),
    ]


def test_every_change_leaves_a_row(store: Store, alice: TenantStore) -> None:
    spec = evaluate_spec()
    job = alice.jobs.add(spec, body_sha256="a", idempotency_key="k")[0].id
    assert not alice.jobs.add(spec, body_sha256="a", idempotency_key="k")[1], "no second row"
    TenantStore(store, View("ops", everything=True), by=ADMIN).jobs.act(CANCEL, job)
    for verb in (RETRY, CANCEL, DELETE):
        alice.jobs.act(verb, job)
    file: dict[str, Any] = {"model": {"name": "vit", "params": {}}, "sha256": "c" * 64, "size": 7}
    stated: dict[str, Any] = {"reading": {"normalization": None, "positions": None}, "place": lambda _: None}
    for _ in range(2):
        alice.checkpoints.add("mine", **file, **stated, quota=audit_quota())
    alice.checkpoints.delete("mine")
    key, key_text = store.keys.create("ci", ["read"], tenant="alice", by=ADMIN)
    opened = store.browser_sessions.open(key_text, by=Actor(address="192.0.2.3"))
    assert opened is not None
    store.browser_sessions.close(opened[1], by=ALICE)
    store.browser_sessions.close(opened[1], by=ALICE)
    for _ in range(2):
        store.keys.revoke(key.id, by=ADMIN)
    store.allotments.set("alice", TenantSettings(weight=3, queued_jobs=5), by=ADMIN)
    found = entries(store)
    assert told(found) == [
        ("job.submit", job, {"kind": "evaluate", "model": spec["model"]["name"]}),
        ("job.cancel", job, {"tenant": "alice"}),
        ("job.retry", job, {}),
        ("job.cancel", job, {}),
        ("job.delete", job, {}),
        ("checkpoint.upload", "mine", {"sha256": "c" * 64, "size": 7, "model": "vit"}),
        ("checkpoint.delete", "mine", {"sha256": "c" * 64}),
        ("key.create", key.id, {"name": "ci", "scopes": ["read"], "tenant": "alice"}),
        ("session.open", None, {}),
        ("session.close", None, {}),
        ("key.revoke", key.id, {"name": "ci", "tenant": "alice"}),
        ("tenant.change", "alice", {"weight": 3, "queued_jobs": 5}),
    ]
    first, opening = found[0], found[8]
    assert (first.tenant, first.key, first.address, first.request) == ("alice", "a" * 8, "192.0.2.1", "r1")
    assert (opening.tenant, opening.key, opening.address) == ("alice", key.id, "192.0.2.3")
    assert opening.session == session_mark(opened[1])
    assert [entry.id for entry in found] == list(range(1, len(found) + 1))
    assert {entry.outcome for entry in found} == {"ok"}
    assert chain_of(found).breaks == []
    everything = "".join(entry.model_dump_json() for entry in found)
    assert key_text.rpartition("_")[2] not in everything
    assert opened[1] not in everything


def audit_quota() -> Any:
    from assay.service.store.fleet.quotas import Quota

    return Quota(10, 10**9)


def test_an_action_and_its_row_are_committed_together(
    store: Store, alice: TenantStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = alice.jobs.add(evaluate_spec(), body_sha256="a")[0]
    with pytest.raises(InvalidState):
        alice.jobs.act(DELETE, job.id)
    assert len(entries(store)) == 1, "what was not done is not told"

    def broken(*_: Any) -> str:
        raise RuntimeError("no room for a row")

    monkeypatch.setattr(audit_module, "chained", broken)
    adding = functools.partial(alice.jobs.add, evaluate_spec(), body_sha256="b")
    for act in (lambda: alice.jobs.act(CANCEL, job.id), adding):
        with pytest.raises(RuntimeError, match="no room"):
            act()
    assert [row.id for row in alice.jobs.page()[0]] == [job.id]
    assert alice.jobs.get(job.id).state == "queued"


CHANGES = [
    "UPDATE audit SET tenant = 'bob' WHERE id = 2",
    "UPDATE audit SET id = 99 WHERE id = 3",
    "DELETE FROM audit WHERE id = 2",
    "DELETE FROM audit",
]
ON_SQLITE = [
    "INSERT OR REPLACE INTO audit SELECT * FROM audit WHERE id = 2",
    "UPDATE OR REPLACE audit SET id = 2",
]
ON_POSTGRESQL = [
    "TRUNCATE audit",
    "INSERT INTO audit SELECT * FROM audit WHERE id = 2 ON CONFLICT (id) DO UPDATE SET tenant = 'bob'",
]


def test_the_application_itself_cannot_change_or_delete_a_row(store: Store, clock: Clock) -> None:
    for seconds in (1e9, 1e9 + 1, 1e9 + 2):
        clock(seconds)
        store.audit.add(ALICE, "access", "/x", outcome="refused", detail={})
    before = entries(store)
    for statement in [*CHANGES, *(ON_POSTGRESQL if store._database.file is None else ON_SQLITE)]:
        with pytest.raises(DBAPIError, match="append-only"):
            raw(store, statement)
        assert entries(store) == before, statement


def test_a_row_of_the_last_day_cannot_go_even_by_way_of_retention(store: Store) -> None:
    store.audit.add(ALICE, "access", "/x", outcome="refused", detail={})
    store.audit.add(Actor(), "audit.expire", "1", outcome="ok", detail={"until": 1, "sha256": "x"})
    with pytest.raises(DBAPIError, match="append-only"):
        raw(store, "DELETE FROM audit WHERE id = 1")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("UPDATE audit SET tenant = 'bob' WHERE id = 3", "entry 3 was changed"),
        ("UPDATE audit SET at = at + 0.001 WHERE id = 3", "entry 3 was changed"),
        ("UPDATE audit SET detail = '{}' WHERE id = 3", "entry 3 was changed"),
        ("DELETE FROM audit WHERE id = 3", "entries are missing between 2 and 4"),
        ("DELETE FROM audit WHERE id = 1", "entries before 2 are missing"),
    ],
)
def test_a_changed_row_shows(store: Store, change: str, message: str) -> None:
    for number in range(5):
        store.audit.add(ALICE, "access", f"/{number}", outcome="refused", detail={"n": number})
    assert chain_of(entries(store)).breaks == []
    unguarded(store, change)
    breaks = chain_of(entries(store)).breaks
    assert len(breaks) == 1
    assert message in breaks[0]


def test_a_row_written_anew_with_its_hash_shows_in_the_next(store: Store) -> None:
    for number in range(3):
        store.audit.add(ALICE, "access", f"/{number}", outcome="refused", detail={})
    second = entries(store)[1].model_dump()
    forged = audit_module.chained(second | {"tenant": "bob"})
    unguarded(store, f"UPDATE audit SET tenant = 'bob', sha256 = '{forged}' WHERE id = 2")
    assert chain_of(entries(store)).breaks == ["entry 3 does not follow the entry 2 that is there"]


@ALWAYS_ON_BOTH
def test_many_writers_make_one_chain(store: Store) -> None:
    def write(number: int) -> None:
        store.audit.add(ALICE, "access", f"/{number}", outcome="refused", detail={})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(40)))
    found = entries(store)
    assert len(found) == 40
    assert chain_of(found).breaks == []


def test_odd_texts_come_back_as_they_were_hashed(store: Store) -> None:
    odd = "a\0b\ud800 é☃" + "x" * 300
    store.audit.add(ALICE, "access", odd, outcome="refused", detail={"path": "é\0☃", "f": 0.1, "n": None})
    found = entries(store)
    assert chain_of(found).breaks == []
    assert found[0].object is not None
    assert len(found[0].object) <= 220
    found[0].model_dump_json()


def test_pages_and_filters(store: Store, clock: Clock) -> None:
    for number in range(7):
        clock(1e9 + number)
        store.audit.add(ADMIN if number % 2 else ALICE, "access", f"/{number}", outcome="refused", detail={})

    def paged(**filters: Any) -> list[str | None]:
        wanted, found, cursor = AuditFilter(**filters), [], None
        while True:
            page, cursor = store.audit.page(wanted, limit=2, cursor=cursor)
            found += [entry.object for entry in page]
            assert len(page) <= 2
            if cursor is None:
                assert sorted(found) == [entry.object for entry in entries(store, wanted)]
                return found

    assert paged() == ["/6", "/5", "/4", "/3", "/2", "/1", "/0"]
    assert paged(tenant="ops") == paged(key="b" * 8) == ["/5", "/3", "/1"]
    assert paged(after=1e9 + 2, before=1e9 + 5) == ["/4", "/3", "/2"]
    assert paged(action="job.submit") == []
    assert paged(tenant="alice", after=1e9 + 3) == ["/6", "/4"]


def test_an_export_is_read_in_pieces_and_ends_where_it_began(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_module, "CHUNK", 2)
    for number in range(5):
        store.audit.add(ALICE, "access", f"/{number}", outcome="refused", detail={})
    chunks = store.audit.chunks(EVERYTHING, until=store.audit.newest())
    sizes = [len(next(chunks))]
    store.audit.add(ALICE, "access", "/later", outcome="refused", detail={})
    assert sizes + [len(chunk) for chunk in chunks] == [2, 2, 1]


def test_retention_removes_the_oldest_and_leaves_the_chain_whole(store: Store, clock: Clock) -> None:
    begun = 1e9
    for day in range(10):
        clock(begun + day * DAY)
        store.audit.add(ALICE, "access", f"/{day}", outcome="refused", detail={})
    clock(begun + 9.9 * DAY)
    assert store.audit.expire(30) == 0
    assert store.audit.expire(9) == 0, "not before it is due for a day"
    clock(begun + 10 * DAY)
    assert store.audit.expire(5) == 6
    found = entries(store)
    assert [entry.object for entry in found] == ["/6", "/7", "/8", "/9", "6"]
    assert found[-1].action == "audit.expire"
    assert found[-1].detail["count"] == 6
    assert chain_of(found).breaks == []
    assert chain_of(found[1:]).breaks, "more is missing than retention removed"
    assert chain_of(found[:-1]).breaks, "retention says what it removed"
    assert store.audit.expire(5) == 0, "once a day is enough"
    clock(begun + 20 * DAY)
    assert store.audit.expire(1) == 5
    assert [entry.action for entry in entries(store)] == ["audit.expire"]
    store.audit.add(ALICE, "access", "/new", outcome="refused", detail={})
    assert chain_of(entries(store)).breaks == []
    assert entries(store)[-1].id == 13
    with pytest.raises(ValueError, match="at least 1"):
        store.audit.expire(0)


def test_retention_takes_a_part_at_once(store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "MAX_EXPIRED", 3)
    clock(1e9)
    for number in range(7):
        store.audit.add(ALICE, "access", f"/{number}", outcome="refused", detail={})
    clock(1e9 + 100 * DAY)
    assert [store.audit.expire(30) for _ in range(4)] == [3, 3, 1, 0]
    assert chain_of(entries(store)).breaks == []


def test_a_row_stays_when_the_clock_was_set_back(store: Store, clock: Clock) -> None:
    for seconds in (1e9, 1e9 + 50 * DAY, 1e9 + 1):
        clock(seconds)
        store.audit.add(ALICE, "access", "/x", outcome="refused", detail={})
    clock(1e9 + 60 * DAY)
    assert store.audit.expire(30) == 1, "the third is old, but follows a young one"
    assert chain_of(entries(store)).breaks == []


def test_an_empty_chain_is_whole(store: Store) -> None:
    assert chain_of(entries(store)) == Chain()


def test_nothing_is_written_for_calls_from_inside(store: Store) -> None:
    with store._database.writing() as connection:
        record(connection, None, "job.submit", "x")
    store.jobs.add(evaluate_spec(), body_sha256="a")
    assert entries(store) == []


def test_a_mark_is_not_the_token_and_not_its_hash(store: Store) -> None:
    from assay.service.store.keys import sha256

    mark = session_mark("token")
    assert re.fullmatch("[0-9a-f]{12}", mark)
    assert not sha256("token").startswith(mark)
