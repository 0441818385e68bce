"""Services for the end-to-end tests: each of them runs in both modes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.running import RunningBox, RunningService
from tests.support.databases import *  # noqa: F403 (fixtures)

Start = Callable[..., RunningService]
MODES = ("embedded", "distributed")


@pytest.fixture(scope="module", params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    """The mode that the test's services run in."""
    return str(request.param)


@pytest.fixture(scope="module")
def make_service(mode: str, request: pytest.FixtureRequest) -> Start:
    """Makes a service that is not running yet; whoever calls it closes it."""
    if mode == "embedded":
        return RunningService
    server: str = request.getfixturevalue("postgresql_server")
    return lambda state, **environment: RunningBox(state, server, **environment)


@pytest.fixture
def start_service(make_service: Start) -> Iterator[Start]:
    """Start a service on a state folder; all are stopped at the end."""
    running: list[RunningService] = []

    def start(state: Path, **environment: str) -> RunningService:
        running.append(make_service(state, **environment))
        return running[-1].start()

    yield start
    for one in running:
        one.close()
