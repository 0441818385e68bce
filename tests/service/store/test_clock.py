"""The database's clock: unix seconds, on both databases."""

from __future__ import annotations

import time
from typing import Any

import pytest
from sqlalchemy import bindparam, literal, select

from assay.service.store.clock import now
from assay.service.store.store import Store


def test_it_counts_seconds_since_1970_in_utc(store: Store) -> None:
    """Julian days, time zones and half days are where such an expression goes wrong."""
    before = time.time()
    with store._database.reading() as connection:
        found = connection.execute(select(now())).scalar_one()
    assert isinstance(found, float)
    assert abs(found - before) < 600, "databases of tests are on this machine"


def test_it_has_parts_of_seconds(store: Store) -> None:
    with store._database.reading() as connection:
        found = [connection.execute(select(now())).scalar_one() for _ in range(20)]
    assert any(abs(at - round(at)) > 0.0005 for at in found)
    assert found == sorted(found)


def test_it_is_a_number_in_sums_and_comparisons(store: Store) -> None:
    given: list[Any] = [now() > bindparam("past"), now() - 60 < now(), (now() + literal(0.25)) - now() > 0]
    with store._database.reading() as connection:
        assert [bool(one) for one in connection.execute(select(*given), {"past": 1.0}).one()] == [True] * 3


def test_it_goes_on_within_a_transaction(store: Store) -> None:
    """A transaction that waited for a lock must not write a lease of before the wait."""
    with store._database.writing() as connection:
        first = connection.execute(select(now())).scalar_one()
        later = first
        for _ in range(10_000):
            later = connection.execute(select(now())).scalar_one()
            if later > first:
                break
        assert later > first


@pytest.mark.parametrize("way", ["select", "where"])
def test_a_statement_is_compiled_once(store: Store, way: str) -> None:
    """The expression has a key of SQLAlchemy's cache: else each claim would be compiled again."""
    statement = select(now()) if way == "select" else select(literal(1)).where(now() > 0)
    assert statement._generate_cache_key() is not None
