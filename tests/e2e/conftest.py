"""Services for the end-to-end tests: each of them runs in all forms."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.jobs import finished, learning
from tests.e2e.running import FORMS, SHARDED, RunningService
from tests.support.databases import *  # noqa: F403 (fixtures)

# In the forms after the first, these tests are costly, the others slow.
IN_ALL = (
    "test_a_job_is_followed_from_its_submission_to_its_end",
    "test_every_form_gives_the_same_results_and_files",
)
Start = Callable[..., RunningService]
HERE = Path(__file__).parent
SHARED = pytest.StashKey[list[RunningService]]()


@pytest.fixture(scope="session", params=FORMS)
def mode(request: pytest.FixtureRequest) -> str:
    """The form that the test's services run in."""
    return str(request.param)


@pytest.fixture(scope="session")
def make_service(mode: str, request: pytest.FixtureRequest) -> Start:
    """Makes a service that is not running yet; whoever calls it closes it."""
    form: Callable[..., RunningService] = FORMS[mode]
    if not FORMS[mode].needs:
        return form
    server: str = request.getfixturevalue(FORMS[mode].needs)
    return lambda state, **environment: form(state, server, **environment)


@pytest.fixture(scope="session")
def kept(
    make_service: Start, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningService]:
    """The service behind `shared`, up or not."""
    folder = tmp_path_factory.mktemp("shared")
    for name in "ab":  # images to evaluate on, and none to train on
        (folder / "data" / "pictures" / "val" / name).mkdir(parents=True)
        (folder / "data" / "pictures" / "val" / name / "1.png").touch()
    service = make_service(
        folder / "state", ASSAY_WORKERS="2", ASSAY_DATA_ROOT=str(folder / "data"), **SHARDED
    )
    request.session.stash.setdefault(SHARED, []).append(service)
    yield service
    service.close()


@pytest.fixture
def data_root(kept: RunningService) -> Path:
    """Data root of the shared service."""
    return kept.state.parent / "data"


@pytest.fixture(scope="module")
def shared(kept: RunningService) -> RunningService:
    """One service with two workers for all tests that neither kill it nor count what is in it."""
    return kept if kept.up else kept.start()


@pytest.fixture(scope="session")
def trained(kept: RunningService) -> str:
    """A training job of the shared service, ended, that other jobs take their weights from."""
    client = (kept if kept.up else kept.start()).client
    return finished(client, client.submit(learning()).id).id


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leaves most of the forms after the first to the slow tests."""
    first = next(iter(FORMS))
    for item in items:
        chosen = getattr(item, "callspec", None)
        is_later = chosen is not None and chosen.params.get("mode", first) != first
        if is_later and HERE in item.path.parents:
            often = item.name.partition("[")[0] in IN_ALL
            item.add_marker(pytest.mark.costly if often else pytest.mark.slow)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """The shared service does not look for work beside the tests of other folders."""
    if nextitem is None or HERE not in nextitem.path.parents:
        for service in item.session.stash.get(SHARED, []):
            if service.up:
                service.stop()


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
