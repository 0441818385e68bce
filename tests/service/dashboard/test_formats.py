"""Values on pages, as people read them."""

from __future__ import annotations

from assay.service.contract.warning_codes import SEVERITIES
from assay.service.dashboard.formats import duration, short, size


def test_values_are_written_as_people_read_them() -> None:
    assert [duration(x) for x in (None, 1.25, 59.6, 3600, 3725)] == [
        "-",
        "1.2 s",
        "1 min 0 s",
        "1 h 0 min",
        "1 h 2 min",
    ]
    assert [size(x) for x in (0, 999, 1500, 2_500_000, 5 * 10**12)] == [
        "0 B",
        "999 B",
        "1.5 kB",
        "2.5 MB",
        "5000.0 GB",
    ]
    assert short("a\nb\x1b" + "c" * 100, 5) == "a b …"
    assert SEVERITIES[0] == "invalid"
