"""What a check gets: its share of the cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.acceptance.context import Context


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_the_shares_are_all_cases_once(parts: int, tmp_path: Path) -> None:
    shares = [
        Context("cpu", True, 60.0, tmp_path, number, parts).share(iter(range(5))) for number in range(parts)
    ]
    assert sorted(case for share in shares for case in share) == list(range(5))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
