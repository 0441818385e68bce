"""Bounds of reports follow the plan of their shard."""

from __future__ import annotations

from assay.workers.supervision.report_bounds import BASE_BYTES, BASE_VALUES, MAX_SHARDS, SMALL, bounds_of


def test_rows_and_columns_decide() -> None:
    few, many = bounds_of("evaluate", 10, 9), bounds_of("evaluate", 1000, 9)
    assert few.size == BASE_BYTES + 10 * (128 + 9 * 32)
    assert (many.size - BASE_BYTES, many.values - BASE_VALUES) == (100 * (few.size - BASE_BYTES), 9000)
    assert many.containers == few.containers


def test_label_maps_have_a_number_for_each_class() -> None:
    plain, maps = bounds_of("evaluate", 100, 6), bounds_of("evaluate", 100, 6, 150)
    assert maps.values - plain.values == 100 * 6 * 150
    assert maps.containers - plain.containers == 100 * 6


def test_other_requests() -> None:
    assert {bounds_of(kind, 0, 0) for kind in ("self_test", "hash", "check")} == {SMALL}
    assert bounds_of("plan", 0, 0).containers > MAX_SHARDS
