"""Loading ahead: in order, with errors where they belong, and without threads that are left over."""

from __future__ import annotations

import threading
import time

import pytest

from assay.workers.data.formats.prefetch import prefetch


def test_results_come_in_order_though_some_take_longer() -> None:
    def slow_first(number: int) -> int:
        time.sleep(0.02 if number == 0 else 0)
        return number * 10

    assert list(prefetch(slow_first, range(20))) == list(range(0, 200, 10))
    assert list(prefetch(slow_first, [])) == []


def test_an_error_is_raised_in_its_turn() -> None:
    def refuse(number: int) -> int:
        if number == 3:
            raise ValueError("number 3 is damaged")
        return number

    loaded = prefetch(refuse, range(10))
    assert [next(loaded) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="number 3 is damaged"):
        next(loaded)


def test_only_a_few_are_loaded_ahead_and_no_thread_is_left() -> None:
    asked: list[int] = []
    before = threading.active_count()
    loaded = prefetch(lambda number: asked.append(number) or number, range(1000))
    assert next(loaded) == 0
    loaded.close()
    assert len(asked) < 20
    assert threading.active_count() == before
