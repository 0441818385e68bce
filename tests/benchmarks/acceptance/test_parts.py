"""Parts of checks: their time, and the one table of their rows."""

from __future__ import annotations

import math

from benchmarks.acceptance.parts import Part, merged, parts_of, whole
from benchmarks.acceptance.record import Record, Row, at_least, at_most, exactly, told, why_not
from tests.benchmarks.acceptance.planted import MACHINE, check


def record(rows: list[Row], why: str | None = None, seconds: float = 1.5) -> Record:
    return Record(
        check="one",
        key={"code": "c", "torch": "t", "device": "d"},
        machine=MACHINE,
        kind="cuda",
        passed=why is None,
        why=why,
        rows=rows,
        seconds=seconds,
        planned=60,
        parts=2,
        together=4,
        finished="2026-01-02",
    )


def test_a_part_has_twice_its_share_of_the_time_and_never_more_than_the_whole() -> None:
    split = check("passes", 420, parts=6)
    assert [part.name for part in parts_of(split, 2)] == ["passes-1of2", "passes-2of2"]
    assert [len(parts_of(split, together)) for together in (1, 2, 16)] == [1, 2, 6]
    assert [Part(split, 0, count).seconds() for count in (1, 2, 6)] == [420, 420, 140]
    assert Part(split, 0, 6).seconds(dry=True) == 280
    assert [part.name for part in parts_of(check("passes", parts=6, alone=True), 16)] == ["passes"]


def test_counts_are_added_and_the_worst_of_bounded_values_is_kept() -> None:
    rows = merged(
        [
            [
                told("cases", 3),
                at_most("error", 1.0, 2.0, "worst: a"),
                exactly("cases that raised", 0, 0),
                at_least("ratio", 5.0, 1.0),
                exactly("device", "yes", "yes"),
            ],
            [
                told("cases", 4),
                at_most("error", 3.0, 2.0, "worst: b"),
                exactly("cases that raised", 2, 0, "c; d"),
                at_least("ratio", 4.0, 1.0),
                exactly("device", "no", "yes"),
                told("more", "text"),
            ],
        ]
    )
    found = {row["what"]: (row["value"], row["case"], row["held"]) for row in rows}
    assert found == {
        "cases": (7, None, True),
        "error": (3.0, "worst: b", False),
        "cases that raised": (2, "c; d", False),
        "ratio": (4.0, None, True),
        "device": ("no", None, False),
        "more": ("text", None, True),
    }


def test_no_number_is_the_worst() -> None:
    for values in ((math.nan, 1.0), (1.0, math.nan)):
        (row,) = merged([[at_most("error", value, 2.0)] for value in values])
        assert not row["held"]


def test_a_check_passes_if_all_of_its_parts_did() -> None:
    good, bad = [told("cases", 1)], [at_most("error", 3.0, 2.0)]
    assert whole([record(good), record(good, seconds=2.0)])["passed"]
    assert whole([record(good), record(good, seconds=2.0)])["seconds"] == 3.5
    fault = whole([record(good), record([], "it was ended when its 60 s were over")])
    assert (fault["passed"], fault["why"]) == (False, "it was ended when its 60 s were over")
    missed = whole([record(good), record(bad, why_not(bad))])
    assert (missed["passed"], missed["why"]) == (False, "error: 3, must be at most 2")
    both = whole([record(bad, why_not(bad)), record([], "its process ended with code 3")])
    assert both["why"] == "its process ended with code 3"
