"""Pages of jobs, newest first, and places in the queue."""

from __future__ import annotations

import base64
import random
from typing import Any

import pytest
from sqlalchemy import event

from assay.service.contract.errors import InvalidSpec
from assay.service.store.ids import encode_cursor
from assay.service.store.store import Store
from tests.support.jobs import add, claim, evaluate_spec, states, train_spec


def walk(store: Store, **filters: Any) -> list[str]:
    """The ids of all pages."""
    found, cursor = [], None
    while True:
        rows, cursor = store.jobs.page(cursor=cursor, **filters)
        found += [row.id for row in rows]
        if cursor is None:
            return found


def test_pages_are_newest_first_and_complete(store: Store) -> None:
    made = [add(store, evaluate_spec()) for _ in range(7)]
    assert store.jobs.page() == ([store.jobs.get(job_id) for job_id in reversed(made)], None)
    for limit in (1, 2, 3, 6, 7, 8):
        assert walk(store, limit=limit) == made[::-1]
    assert store.jobs.page(limit=7)[1] is None
    assert store.jobs.page(limit=6)[1] is not None


def test_pages_do_not_shift_when_jobs_come_and_go(store: Store) -> None:
    made = [add(store, evaluate_spec()) for _ in range(6)]
    rows, cursor = store.jobs.page(limit=2)
    seen = [row.id for row in rows]
    while cursor is not None:
        add(store, evaluate_spec())
        store.jobs.cancel(seen[-1])
        store.jobs.delete(seen[-1])
        rows, cursor = store.jobs.page(limit=2, cursor=cursor)
        seen += [row.id for row in rows]
    assert seen == made[::-1]


def test_an_empty_list_has_no_next_page(store: Store) -> None:
    assert store.jobs.page() == ([], None)


def test_filters_are_joined_by_and(store: Store) -> None:
    a = add(store, evaluate_spec(model="vit", tags=["demo", "x"]))
    b = add(store, train_spec(model="vit", tags=["demo"]))
    c = add(store, evaluate_spec(model="symvit", tags=["x"]))
    d = add(store, evaluate_spec(model="vit"))
    store.jobs.cancel(d)
    for filters, wanted in (
        ({"kind": "train"}, [b]),
        ({"model": "vit"}, [a, b, d]),
        ({"state": "queued"}, [a, b, c]),
        ({"state": "canceled"}, [d]),
        ({"tag": "demo"}, [a, b]),
        ({"tag": "x", "model": "vit"}, [a]),
        ({"tag": "x", "kind": "train"}, []),
        ({"tag": "de"}, []),
        ({"state": "queued", "kind": "evaluate", "model": "symvit", "tag": "x"}, [c]),
    ):
        assert walk(store, limit=1, **filters) == wanted[::-1], filters


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "a" * 10_000,
        "\ud800",
        "é",
        "not base64!",
        base64.urlsafe_b64encode(b"0" * 25).decode(),
        base64.urlsafe_b64encode(b"0' OR 1=1 --0000000000000a").decode(),
        encode_cursor("0" * 26) + "=",
        encode_cursor("0" * 26) + "\n",
        encode_cursor("0" * 26)[:-1] + "B",
    ],
)
def test_a_malformed_cursor_is_an_invalid_query(store: Store, cursor: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        store.jobs.page(cursor=cursor)
    assert caught.value.details[0].loc == ["query", "cursor"]
    # The answer must be JSON that UTF-8 can carry.
    caught.value.envelope().model_dump_json().encode("utf-8")


def test_a_cursor_is_opaque_and_fits_a_url(store: Store) -> None:
    made = [add(store, evaluate_spec()) for _ in range(2)]
    cursor = store.jobs.page(limit=1)[1]
    assert cursor is not None
    assert made[1] not in cursor
    assert cursor.isalnum()


def test_a_page_costs_two_queries_however_many_jobs_it_has(store: Store) -> None:
    for _ in range(5):
        add(store, evaluate_spec(tags=["a", "b"]))
    statements: list[str] = []

    def record(_c: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if statement.startswith(("SELECT", "WITH")):
            statements.append(statement)

    event.listen(store._database.engine, "before_cursor_execute", record)
    rows, _ = store.jobs.page()
    assert len(statements) == 2
    assert len(store.jobs.queue_positions(rows)) == 5
    assert len(statements) == 3


def place(store: Store, job_id: str) -> int | None:
    return store.jobs.queue_positions([store.jobs.get(job_id)]).get(job_id)


def test_the_place_in_the_queue_is_the_order_of_claiming(store: Store) -> None:
    priorities = [5, 9, 5, 1, 9]
    made = [add(store, evaluate_spec(priority=priority)) for priority in priorities]
    wanted = [made[1], made[4], made[0], made[2], made[3]]
    places = [place(store, job_id) for job_id in wanted]
    assert places == [1, 2, 3, 4, 5]
    assert store.jobs.queue_positions(store.jobs.page()[0]) == dict(zip(wanted, places, strict=True))
    assert claim(store).job_id == wanted[0]
    assert states(store, wanted[0]) == ["starting"]
    assert place(store, wanted[0]) is None
    assert place(store, wanted[4]) == 4


def test_places_on_a_page_with_gaps(store: Store) -> None:
    """Between the jobs of a filtered page stand others, of their own and of other priorities."""
    draw = random.Random(0)
    specs = [evaluate_spec(priority=draw.choice([1, 5, 9]), tags=draw.choice([["a"], []])) for _ in range(40)]
    made = {add(store, spec): spec for spec in specs}
    for job_id in draw.sample(list(made), 5):
        store.jobs.cancel(job_id)
        del made[job_id]
    order = sorted(made, key=lambda job_id: (-made[job_id]["priority"], job_id))
    places = {job_id: number + 1 for number, job_id in enumerate(order)}
    chosen = [row for row in store.jobs.page(tag="a", limit=9)[0] if row.state == "queued"]
    assert {row.priority for row in chosen} == {1, 5, 9}
    assert store.jobs.queue_positions(chosen) == {row.id: places[row.id] for row in chosen}


def test_a_search_finds_parts_of_names_in_any_case_and_ids(store: Store) -> None:
    made = {
        name: add(store, evaluate_spec(name=name))
        for name in ("RPC on digits", "50 % noise", "a_b", "axb", "")
    }
    for text, wanted in (
        ("rpc", ["RPC on digits"]),
        ("DIGITS", ["RPC on digits"]),
        ("%", ["50 % noise"]),
        ("_", ["a_b"]),
        ("nothing", []),
    ):
        assert [row.name for row in store.jobs.page(search=text)[0]] == wanted, text
    assert [row.id for row in store.jobs.page(search=made[""])[0]] == [made[""]]
    assert walk(store, search="a", limit=1) == [made["axb"], made["a_b"]]
