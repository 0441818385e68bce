from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from assay.service.store import ids
from assay.service.store.ids import is_id, new_id


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without ids yet; its ids do not disturb later tests."""
    monkeypatch.setattr(ids._sequence, "last", 0)


def test_an_id_holds_its_time_in_its_first_ten_letters() -> None:
    # The example of the ULID specification: 2016-07-30T22:36:16.385Z.
    assert new_id(1_469_918_176.385)[:10] == "01aryz6s41"


def test_ids_are_well_formed_and_sort_by_creation_even_within_a_millisecond() -> None:
    made = [new_id(2_000_000_000.0) for _ in range(500)] + [
        new_id(1_999_999_999.0),
        new_id(2_000_000_000.001),
    ]
    assert all(is_id(one) for one in made)
    assert sorted(set(made)) == made


def test_threads_never_make_the_same_id() -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(new_id, [3_000_000_000.0] * 2000))
    assert len(set(made)) == 2000


@pytest.mark.parametrize(
    "text", ["", "0" * 25, "0" * 27, "8" + "0" * 25, "0" * 25 + "u", "0" * 25 + "A", "0" * 26 + "\n"]
)
def test_other_texts_are_no_ids(text: str) -> None:
    assert not is_id(text)


@pytest.mark.parametrize("seconds", [-1.0, 2.0**48])
def test_moments_that_an_id_cannot_hold_are_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="seconds"):
        new_id(seconds)
