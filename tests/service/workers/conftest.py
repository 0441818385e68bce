"""A fake Slurm on PATH, and a client of the service in this process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.service.client import AssayClient
from tests.support.fake_slurm import FakeSlurm


@pytest.fixture
def fake_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    folder = tmp_path / "slurm"
    folder.mkdir()
    fake = FakeSlurm(folder)
    monkeypatch.setenv("PATH", f"{fake.install()}{os.pathsep}{os.environ['PATH']}")
    return fake


@pytest.fixture
def client(transport: Any) -> Iterator[AssayClient]:
    with AssayClient(transport=transport) as client:
        yield client
