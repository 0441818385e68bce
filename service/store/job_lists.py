"""Lists of jobs: filtered, in groups, sorted by a value, and cut into pages that later jobs never shift."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, Unpack

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Connection, FromClause, Row, Select, func, literal_column, select

from assay.service.contract.summaries import Group, Sort
from assay.service.store.ids import decode_cursor, encode_cursor, foreign_cursor, is_id
from assay.service.store.row_mapping import job_row
from assay.service.store.rows import JobFilters, JobGroup, JobRow
from assay.service.store.tables import jobs, studies, study_jobs, tags

MAX_PAGE_CHARACTERS = 4_000_000  # Of all specs on a page; one job is always on it.
MAX_NUMBER = 2**63
SORTED: Mapping[str, Sequence[ColumnElement[Any]]] = {
    "name": [jobs.c.name],
    "clean": [jobs.c.clean],
    "worst": [jobs.c.worst_at, jobs.c.worst],
    "n": [jobs.c.examples],
    "duration": [jobs.c.finished_at - jobs.c.started_at],
    "seed": [jobs.c.seed],
}
GROUP_TAGS = tags.alias("group_tags")
# The table of a group's values, and the values: a study's newest first, a tag's by name.
GROUPED: Mapping[str, tuple[FromClause | None, dict[ColumnElement[Any], bool]]] = {
    "study": (None, {jobs.c.study_id: True}),
    "arm": (study_jobs, {jobs.c.study_id: True, study_jobs.c.arm: False}),
    "tag": (GROUP_TAGS, {GROUP_TAGS.c.tag: False}),
}
# What jobs are ordered by, never null, and whether descending.
JobOrder = list[tuple[ColumnElement[Any], bool]]


class JobPage(NamedTuple):
    """A page; with groups, the group of each job, and a job in several groups is there several times."""

    rows: list[JobRow]
    following: str | None
    groups: list[JobGroup]


class JobListing(JobFilters, total=False):
    """What a list of jobs is asked for: by default the newest 50 of all tenants."""

    limit: int
    cursor: str | None
    tenant: str | None
    sort: Sort
    group: Group | None


def page_of_jobs(connection: Connection, **asked: Unpack[JobListing]) -> JobPage:
    """A page of at most `limit` jobs, fewer where their specs are very long; checks are not listed.

    Jobs without a value are last. Raises InvalidSpec: a cursor of another list.
    """
    limit, cursor = asked.get("limit", 50), asked.get("cursor")
    sort, group = asked.get("sort", "-created"), asked.get("group")
    by = jobs.c.id if asked.get("tag") is None else tags.c.job_id  # From the table with an index in order.
    leading = [key for item in GROUPED[group][1].items() for key in _keys(*item)] if group else []
    values = SORTED.get(sort.removeprefix("-"), ())
    inside = [key for value in values for key in _keys(value, sort.startswith("-"))]
    order = [*leading, *inside, (by, sort != "created")]
    statement = _filtered(select(jobs.c.id, *_labelled(order)), asked)
    if cursor is not None:
        statement = statement.where(_after(order, _places(cursor, [sort, group], order)))
    page = statement.order_by(*_directed(order)).limit(limit + 1).subquery()
    # Sizes of these specs alone: sorting by anything else than the id would read them all.
    sized = select(jobs.c.id, func.length(jobs.c.spec).label("size"), *[*page.c][1:])
    sized = sized.join(page, page.c.id == jobs.c.id)
    down = [descending for _, descending in order]
    found = connection.execute(sized.order_by(*_directed(list(zip([*page.c][1:], down, strict=True))))).all()
    sizes = accumulate(row.size for row in found[:limit])
    # 200 specs of a megabyte would fill the memory.
    count = sum(1 for number, size in enumerate(sizes) if number == 0 or size <= MAX_PAGE_CHARACTERS)
    chosen = found[:count]
    read = connection.execute(select(jobs).where(jobs.c.id.in_({row.id for row in chosen})))
    known = {row.id: job_row(row) for row in read}
    chosen = [row for row in chosen if row.id in known]  # A job may have been deleted between the statements.
    following = None
    if len(found) > count:
        last = found[count - 1][2:]
        following = encode_cursor(last[0] if len(order) == 1 else json.dumps([sort, group, *last]))
    groups = _groups(connection, chosen, leading, asked) if group else []
    return JobPage([known[row.id] for row in chosen], following, groups)


def _filtered(statement: Select[Any], asked: JobListing) -> Select[Any]:
    statement = statement.select_from(jobs).where(jobs.c.kind != "check")
    equal = (
        (jobs.c.tenant, asked.get("tenant")),
        (jobs.c.state, asked.get("state")),
        (jobs.c.kind, asked.get("kind")),
        (jobs.c.model, asked.get("model")),
        (jobs.c.study_id, asked.get("study")),
    )
    for column, wanted in equal:
        if wanted is not None:
            statement = statement.where(column == str(wanted))
    if (search := asked.get("search")) is not None:
        found_in_name = jobs.c.name.icontains(search, autoescape=True)
        statement = statement.where(found_in_name | (jobs.c.id == search))
    if (tag := asked.get("tag")) is not None:
        statement = statement.join(tags, tags.c.job_id == jobs.c.id).where(tags.c.tag == tag)
    group = asked.get("group")
    source = GROUPED[group][0] if group else None
    return statement if source is None else statement.outerjoin(source, source.c.job_id == jobs.c.id)


def _keys(value: ColumnElement[Any], descending: bool) -> JobOrder:
    # Constants in the text, as PostgreSQL groups by equal expressions.
    missing = sa.case(
        (value.is_(None), literal_column("1", sa.Integer)), else_=literal_column("0", sa.Integer)
    )
    nothing: ColumnElement[Any] = literal_column({str: "''", int: "0", float: "0.0"}[_kind(value)])
    return [(missing, False), (func.coalesce(value, nothing, type_=value.type), descending)]


def _directed(order: JobOrder) -> list[ColumnElement[Any]]:
    return [key.desc() if descending else key.asc() for key, descending in order]


def _kind(value: ColumnElement[Any]) -> type:
    kind = value.type.python_type
    return str if kind is object else kind  # of a type of `store/columns.py`


def _labelled(order: JobOrder) -> list[ColumnElement[Any]]:
    return [key.label(f"k{number}") for number, (key, _) in enumerate(order)]


def _after(order: JobOrder, places: Sequence[Any]) -> ColumnElement[bool]:
    found: ColumnElement[bool] = sa.false()
    for (key, descending), place in reversed(list(zip(order, places, strict=True))):
        found = (key < place if descending else key > place) | ((key == place) & found)
    return found


def _places(cursor: str, by: list[str | None], order: JobOrder) -> list[Any]:
    if len(order) == 1:
        return [decode_cursor(cursor)]
    try:
        listed = json.loads(decode_cursor(cursor, r"\[.*\]"))
    except (ValueError, RecursionError):
        raise foreign_cursor(cursor) from None
    places: list[Any] = listed[2:]
    fits = listed[:2] == by and [*map(type, places)] == [_kind(key) for key, _ in order]
    if not fits or not is_id(places[-1]):
        raise foreign_cursor(cursor)
    for (key, _), place in zip(order, places, strict=True):
        most = 2**31 if type(key.type) is sa.Integer else MAX_NUMBER  # As PostgreSQL holds them.
        if isinstance(place, int | float) and not abs(place) < most:
            raise foreign_cursor(cursor)
    return places


def _groups(
    connection: Connection, rows: Sequence[Row[Any]], order: JobOrder, asked: JobListing
) -> list[JobGroup]:
    """The group of each row: its name, and number and mean accuracy of all its jobs that match."""
    placed = [tuple(row[2 : 2 + len(order)]) for row in rows]
    keys = [key for key, _ in order]
    # Worst cases may be at several radii: no mean. A training measures what its evaluation does.
    clean = sa.case((jobs.c.kind == "evaluate", jobs.c.clean))
    counted = func.count(), func.count(clean), func.avg(clean)
    statement = _filtered(select(*_labelled(order), *counted), asked).where(sa.tuple_(*keys).in_(set(placed)))
    facts = {tuple(row[: len(keys)]): row for row in connection.execute(statement.group_by(*keys))}
    ids = {places[1] for places in placed}
    read = select(studies.c.id, studies.c.name, studies.c.spec).where(studies.c.id.in_(ids))
    known = {row.id: row for row in connection.execute(read)}
    empty = 0, 0, None
    return [_group(places, known.get(places[1]), asked, *facts.get(places, empty)[-3:]) for places in placed]


def _group(places: tuple[Any, ...], study: Any, asked: JobListing, count: int, *facts: Any) -> JobGroup:
    if study is None:
        return JobGroup(places[1], None, count)
    name = study.name.strip() or study.id
    if asked.get("group") != "arm" or places[2]:
        return JobGroup(name, study.id, count)
    # Other groups have several models, data or metrics: no mean.
    return JobGroup(f"{name}: {study.spec['arms'][places[3]]['name']}", study.id, count, *facts)
