"""Services for the tests that start, kill and restart their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.running import RunningService


@pytest.fixture
def start_service() -> Iterator[Callable[..., RunningService]]:
    """Start a service on a state folder; all are stopped at the end."""
    running: list[RunningService] = []

    def start(state: Path, **environment: str) -> RunningService:
        running.append(RunningService(state, **environment).start())
        return running[-1]

    yield start
    for one in running:
        one.stop()
