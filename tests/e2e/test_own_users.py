"""Jobs of a real service run under users of their own: work, cancels, kills, a second start, nothing left."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from assay.models.layers.layers import Classifier
from assay.models.symvit import symvit
from assay.workers.containment.probe import missing_parts
from assay.workers.containment.settings import PREFIX
from assay.workers.containment.users import Users
from tests.e2e.jobs import SHAPE, attacking, finished, outcomes, pgd, training
from tests.e2e.running import SHARDED, RunningService, kill, wait_for
from tests.support.children import in_a_child
from tests.support.mounts import private_mounts
from tests.support.packages import install_every_kind
from tests.support.programs import export

Start = Callable[..., RunningService]
IN_HOME = Path(sys.base_prefix).is_relative_to(Path.home())
pytestmark = [
    pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become other users"),
    pytest.mark.skipif(bool(missing_parts()), reason=f"this machine lacks {list(missing_parts())}"),
    pytest.mark.skipif(
        IN_HOME and not in_a_child(private_mounts),
        reason="Python is in a closed home, and no mounts can be made that open it",
    ),
]
# A range that no other service of this machine uses.
USERS = Users(1_950_000_000, 1 << 20)
LONG = [pgd(f"{number}/255", steps=200) for number in range(1, 9)]


@pytest.fixture
def service(make_service: Start) -> Iterator[RunningService]:
    """A service with everything required, in a folder that others can reach; pytest's folders are closed."""
    with tempfile.TemporaryDirectory(prefix="assay-test-") as folder:
        home = Path(folder)
        home.chmod(0o755)
        (home / "temporary").mkdir()
        (home / "temporary").chmod(0o1777)
        install_every_kind(home / "site")
        running = make_service(
            home / "state",
            ASSAY_SANDBOX="required",
            ASSAY_SANDBOX_USER="required",
            ASSAY_EVALUATOR_USERS=f"{USERS.first}-{USERS.first + USERS.count - 1}",
            ASSAY_WORKERS="2",
            TMPDIR=str(home / "temporary"),
            PYTHONPATH=str(home / "site"),  # the embedded service lists its components in its state folder
            **SHARDED,
        )
        if IN_HOME:
            running.runner = ("tests.support.mounts",)
        yield running
        running.close()


def user_of(job: str) -> int:
    return USERS.of(Path(job))


def owned() -> dict[int, int]:
    """Process id -> user of everything that runs under these users."""
    found = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            lines = (entry / "status").read_text().splitlines() if entry.name.isdigit() else []
            user = next((int(line.split()[1]) for line in lines if line.startswith("Uid:")), 0)
            if USERS.first <= user < USERS.first + USERS.count:
                found[int(entry.name)] = user
    return found


def running_as(job: str) -> list[int]:
    """The processes of a job's user, once there are some."""
    found: list[int] = wait_for(lambda: [pid for pid, user in owned().items() if user == user_of(job)], 120)
    return found


@pytest.mark.costly
def test_jobs_run_as_their_users_and_leave_nothing(service: RunningService, tmp_path: Path) -> None:
    client = service.start().client
    ready = httpx.get(f"{client.url}/readyz").json()
    assert (ready["containment_missing"], ready["containment_optional"]) == ({}, {})
    trained = client.submit(training()).id
    assert running_as(trained)
    finished(client, trained)
    attack = attacking(trained, [pgd(steps=2)], limit=64)
    attack["execution"]["repeat"] = 0.5
    attacked = client.submit(attack).id
    finished(client, attacked)
    # Shards that are computed again have a user of their own, who reads the weights too.
    provenance = client.results(attacked).provenance
    assert provenance is not None
    assert provenance.repeated == {"shards": 1, "equal": 1, "other_workers": 1, "not_compared": {}}
    # What evaluators wrote is read by the service, and by no other user.
    before = outcomes(client, attacked, tmp_path / "before")
    assert len(before) == 1
    for artifact in client.artifacts(trained):
        assert client.download(trained, artifact.name, tmp_path / "trained").stat().st_size == artifact.size
    check_folders(service, trained, attacked)

    network = Classifier(symvit(10, 1, **SHAPE), [0.0], [1.0]).eval()
    file = export(network, tmp_path / "mine.pt2", shape=(1, SHAPE["image_size"], SHAPE["image_size"]))
    client.upload_checkpoint("mine", file)
    mine = attacking(None, [pgd(steps=2)], limit=64) | {
        "model": {"name": "exported", "weights": {"checkpoint": "mine"}}
    }
    finished(client, client.submit(mine).id)

    # The retry of a killed evaluator has the same user.
    killed = client.submit(attacking(trained, LONG)).id
    wait_for(lambda: client.job(killed).progress.done > 0, 120)
    first = running_as(killed)
    kill(first[0])
    again = wait_for(lambda: [*set(running_as(killed)) - set(first)], 120)
    assert again
    assert client.job(killed).state == "running"
    client.cancel(killed)
    wait_for(lambda: client.job(killed).state == "canceled", 120)
    wait_for(lambda: user_of(killed) not in owned().values(), 120)

    # A second start of the same folder: earlier jobs are readable, and go on.
    service.stop()
    wait_for(lambda: not owned(), 120)
    assert not [*(service.state.parent / "temporary").glob(f"{PREFIX}*")]
    client = service.start().client
    repeated = client.submit(attacking(trained, [pgd(steps=2)], limit=64)).id
    finished(client, repeated)
    assert outcomes(client, repeated, tmp_path / "after") == before
    client.retry(killed)
    wait_for(lambda: running_as(killed), 120)
    client.cancel(killed)
    wait_for(lambda: client.job(killed).state == "canceled", 120)
    client.delete(attacked)
    assert not service.files.sizes(attacked)
    check_folders(service, trained, repeated, killed)


def check_folders(service: RunningService, *jobs: str) -> None:
    """No other user reads a job's files: they belong to its user, or to root and its group."""
    for job in jobs:
        folders = [state / "artifacts" / job for state in service.worker_states]
        folders = [folder for folder in folders if folder.exists()]
        assert folders
        for folder in folders:
            for path in (folder, *folder.rglob("*")):
                found = path.stat()
                assert (found.st_uid in (0, user_of(job)), found.st_gid) == (True, user_of(job)), path
        assert user_of(job) in {folder.stat().st_uid for folder in folders}  # root's: weights for others
        kept = service.state / "artifacts" / job  # none with an object store
        for folder in (*folders, *([kept] if kept.exists() else [])):
            assert stat.S_IMODE(folder.stat().st_mode) & 0o007 == 0
