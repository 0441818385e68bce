"""Faults of what surrounds the workers: disk, clock, API processes, the leading reaper, an upgrade."""

from __future__ import annotations

import os
import signal
import time

from tests.storm import clock
from tests.storm.cluster import NEXT
from tests.storm.disguise import version_of
from tests.storm.faults import Fault, Faults, wait_until
from tests.storm.site import LEASE_SECONDS

HOUR = 3600.0
# For a process that starts on a loaded machine.
START_SECONDS = 180.0
FOLLOWED_SECONDS = 60.0


def fill_disk(faults: Faults) -> bool:
    """Leaves no room for outcomes, artifacts and checkpoints for some seconds."""
    disk = faults.cluster.disk
    if not wait_until(faults.evidence.ready, START_SECONDS):
        return False
    disk.fill()
    try:
        said = wait_until(lambda: faults.evidence.readiness().get("artifacts") == "not_writable", 10)
        time.sleep(faults.draw.uniform(1.0, 3.0))
    finally:
        disk.free()
    if said:
        faults.name("disk full", "/readyz: artifacts not_writable")
    return True


def step_clock(faults: Faults) -> bool:
    """Lets the database's clock jump by an hour, and back; no lease may be taken for that.

    Only under the eye of a reaper: nobody can know of a jump while none runs.
    """
    faults.end()
    if not wait_until(faults.evidence.watches_clock, START_SECONDS):
        faults.problems.append(f"no reaper has had its duty within {START_SECONDS:g} s")
        return False
    time.sleep(LEASE_SECONDS + 2)  # what was struck before has lost its leases by now
    before, ahead = faults.evidence.losses(), faults.draw.choice([HOUR, -HOUR])
    for seconds in (ahead, 0.0):
        clock.set_ahead(faults.cluster.url, seconds)
        time.sleep(LEASE_SECONDS)
    if (taken := faults.evidence.losses() - before) > 0:
        faults.problems.append(f"{taken} leases were taken because the clock was set")
    for line in faults.evidence.in_logs("*.log", "the database's clock jumped by")[:1]:
        faults.name("clock steps", line)
    return True


def kill_api(faults: Faults) -> bool:
    """kill -9 of an API process, in the middle of its answers; it is started again after a while."""
    running = [api for api in faults.cluster.apis if api.process is not None and api.up]
    if not running:
        return False
    api = faults.draw.choice(running)
    assert api.process is not None
    api.process.kill()
    api.process.wait()
    time.sleep(faults.draw.uniform(0, 2.0))
    faults.cluster.start(api)
    return True


def kill_reaper(faults: Faults) -> bool:
    """kill -9 of the process that leads the reapers; another must follow."""
    holder = faults.evidence.reaper()
    if not holder:
        return False
    try:
        os.kill(int(holder.split(":")[2]), signal.SIGKILL)
    except ProcessLookupError:
        return False
    follower = wait_until(lambda: _another(faults, holder), FOLLOWED_SECONDS)
    if follower:
        faults.name("leading reapers killed", f"{follower} follows {holder}")
    else:
        faults.problems.append(f"no reaper followed {holder} within {FOLLOWED_SECONDS:g} s")
    return True


def roll_upgrade(faults: Faults) -> bool:
    """Migrates while all run, then restarts box after box as the next version; once in a storm.

    In between an API process of the version before is killed, and must come back over the new tables.
    """
    cluster = faults.cluster
    if cluster.version:
        return False
    if (code := cluster.migrate()) != 0:
        faults.problems.append(f"the migration ended with exit code {code}")
    _restart_first_api(faults)
    cluster.version, digest = NEXT, version_of(NEXT)["digest"]
    for box in range(cluster.size):
        before = faults.evidence.online(digest)
        # So that a job is left that only those of the version before could finish.
        wait_until(lambda: faults.evidence.outdated(digest), 10)
        cluster.upgrade(box)
        if not wait_until(lambda: faults.evidence.online(digest) > before, START_SECONDS):  # noqa: B023
            faults.problems.append(f"box {box} of the next version has no worker online")
    for number in range(len(cluster.apis)):
        cluster.upgrade_api(number)
    return True


def _restart_first_api(faults: Faults) -> None:
    cluster = faults.cluster
    first = cluster.apis[0]
    if first.process is not None and first.up:
        first.process.kill()
        first.process.wait()
    cluster.start(first)
    if not wait_until(faults.evidence.first_is_ready, START_SECONDS):
        faults.problems.append("an API process of the version before does not start after the migration")


def _another(faults: Faults, holder: str) -> str:
    present = faults.evidence.reaper()
    return "" if present == holder else present


SURROUNDINGS: dict[str, tuple[Fault, float]] = {
    "disk full": (fill_disk, 2),
    "clock steps": (step_clock, 0.5),
    "API processes killed": (kill_api, 4),
    "leading reapers killed": (kill_reaper, 1.5),
    "rolling upgrade": (roll_upgrade, 0),
}
# Over the gateway the only reaper is the service's own: it is killed with it.
WITHOUT_NODES = {name: kind for name, kind in SURROUNDINGS.items() if name != "leading reapers killed"}
