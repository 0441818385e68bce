from __future__ import annotations

from assay.service.contract.times import iso, iso_or_none


def test_times_are_in_utc_with_milliseconds() -> None:
    assert iso(0.0) == "1970-01-01T00:00:00.000Z"
    assert iso(1_700_000_000.1239) == "2023-11-14T22:13:20.123Z"
    assert (iso_or_none(None), iso_or_none(0.0)) == (None, iso(0.0))
