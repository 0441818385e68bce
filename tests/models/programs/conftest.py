from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.programs import Net, export


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small convolutional network as a program."""
    return export(Net(), tmp_path_factory.mktemp("programs") / "plain.pt2")
