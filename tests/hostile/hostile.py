"""Every attempt of this folder against an embedded and a distributed service: `make hostile`.

Prints a line for each: how it was refused, in which time, and by how much the serving process grew. Ends
with 1 if any was not refused, or the service did not survive it.
"""

from __future__ import annotations

import argparse
import importlib
import resource
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from assay.service.store.store import open_store
from tests.e2e.running import RunningBox, RunningService
from tests.hostile.attempt import Attempt, Target
from tests.support.servers import PrivatePostgresql

FOLDER = Path(__file__).parent
OURS = ("__init__", "attempt", "hostile")
MODES = ("embedded", "distributed")
MIB = 1 << 20
MIN_DESCRIPTORS = 8192


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the chosen areas, by default all, and prints each attempt when it is over."""
    areas = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in OURS)
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.hostile", description=__doc__)
    parser.add_argument("areas", nargs="*", metavar="AREA", help=", ".join(areas))
    parser.add_argument("--mode", choices=MODES, help="one of them; without it both")
    options = parser.parse_args(arguments)
    if unknown := set(options.areas) - set(areas):
        parser.error(f"unknown area {', '.join(sorted(unknown))}; allowed: {', '.join(areas)}")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(MIN_DESCRIPTORS, hard), max(MIN_DESCRIPTORS, hard)))
    failed = attempted = 0
    for mode in [options.mode] if options.mode else MODES:
        for area in options.areas or areas:
            module = importlib.import_module(f"tests.hostile.{area}")
            attempts: tuple[Attempt, ...] = module.ATTEMPTS
            environment: dict[str, str] = getattr(module, "ENVIRONMENT", {})
            # Each area gets a service of its own: quotas and lock-outs of one are not another's refusals.
            with tempfile.TemporaryDirectory() as folder, running(mode, Path(folder), environment) as target:
                for attempt in attempts:
                    attempted += 1
                    failed += not tried(area, attempt, target)
    sys.stdout.write(f"{attempted} attempts, {failed} not refused\n")
    sys.exit(1 if failed else 0)


def tried(area: str, attempt: Attempt, target: Target) -> bool:
    """Runs one attempt and prints its line; False if it was not refused."""
    before, started = resident(target.pid), time.monotonic()
    try:
        how, refused = attempt.run(target), True
        after = resident(target.pid)
    except Exception as error:  # any failure of an attempt is the finding
        how, refused, after = f"{type(error).__name__}: {error}", False, before
        traceback.print_exc()
    seconds, grown = time.monotonic() - started, (after - before) / MIB
    word = "refused" if refused else "NOT REFUSED"
    said = f"{attempt.title}: {how} ({seconds:.1f} s, {grown:+.0f} MiB)"
    sys.stdout.write(f"{word:<11}  {target.mode:<11}  {area:<11}  {said}\n")
    sys.stdout.flush()
    return refused


def resident(pid: int) -> int:
    """Bytes of memory that a process has; an error if it is gone."""
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * resource.getpagesize()


@contextmanager
def running(mode: str, folder: Path, environment: dict[str, str]) -> Iterator[Target]:
    """A service with three keys, and further variables."""
    state, data = folder / "state", folder / "data"
    data.mkdir()
    environment = {"ASSAY_DATA_ROOT": str(data), **environment}
    if mode == "distributed":
        with PrivatePostgresql() as server:
            yield from _served(RunningBox(state, server.url, **environment), mode, data)
    else:
        yield from _served(RunningService(state, ASSAY_REQUIRE_KEYS="true", **environment), mode, data)


def _served(service: RunningService, mode: str, data: Path) -> Iterator[Target]:
    service.state.mkdir(exist_ok=True)
    with open_store(service.database) as store:
        admin = store.keys.create("hostile admin", ["admin"], tenant="ops")[1]
        alice, bob = (store.keys.create(name, ["submit"], tenant=name)[1] for name in ("alice", "bob"))
    service.key = admin
    try:
        service.start()
        yield Target(
            service.client.url, mode, admin, alice, bob, service.state, service.pid, service.database, data
        )
    finally:
        service.close()


if __name__ == "__main__":
    main()
