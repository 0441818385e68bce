from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def config_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder for the configuration, so that no test reads that of whoever runs it."""
    folder = tmp_path / "xdg"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))
    monkeypatch.delenv("ASSAY_PROFILE", raising=False)
    return folder / "assay"
