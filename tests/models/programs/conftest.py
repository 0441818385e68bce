from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.programs import Net, export


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small convolutional network as a program."""
    return export(Net(), tmp_path_factory.mktemp("programs") / "plain.pt2")


@pytest.fixture
def nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No program leaves the trace of its code."""
    monkeypatch.chdir(tmp_path)  # where "touch hacked" would leave a trace
    yield
    assert not (tmp_path / "hacked").exists()
