"""A hub on localhost, and a folder for what is pulled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from tests.support.hub_pulls import MODEL
from tests.support.hub_server import Hub, hub_server


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    with hub_server() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub-cache"))
        monkeypatch.delenv("HF_TOKEN", raising=False)
        server.repositories["org/net"] = MODEL
        yield server


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "weights"
