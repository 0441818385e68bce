"""Specific to the embedded mode: one service per state folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.running import RunningService


@pytest.mark.costly
def test_two_services_do_not_share_a_state_folder(tmp_path: Path) -> None:
    first = RunningService(tmp_path / "state", ASSAY_WORKERS="0")
    second = RunningService(tmp_path / "state", ASSAY_WORKERS="0")
    first.start()
    try:
        with pytest.raises(AssertionError, match=f"process {first.pid}"):
            second.start()
    finally:
        first.close()
