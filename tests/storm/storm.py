"""Many jobs on several workers under faults; afterwards every result must exist exactly once.

    python -m tests.storm.storm [--jobs 200] [--shards 20] [--workers 4] [--seed N] [--keep FOLDER]

The same jobs run twice: undisturbed, and in the storm. Prints what happened. A storm that fails keeps its
folder: the logs of every process, and the tables as JSON lines.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.storm import verdict
from tests.storm.cluster import SETTINGS, Cluster, Servers, Site
from tests.storm.doorbell import BadDoorbell
from tests.storm.faults import Faults
from tests.storm.jobs import Wish, wishes
from tests.storm.users import Users
from tests.support.workers import settings, supervising

log = logging.getLogger(__name__)
GONE_SECONDS = 15.0


@dataclass(frozen=True)
class Plan:
    """Size of a storm.

    Attributes:
        faults: after so many the sky clears, so that what is left can be finished. They come in step with the
            shards that are finished, so that a slow machine sees as many of them as a fast one.
        longest_calm: but a fault comes after so many seconds at the latest.
        patience: a run that ends no shard for so many seconds has failed.
        shard_seconds: how long a shard of the fake evaluator takes.
    """

    seed: int
    jobs: int = 200
    shards: int = 20
    workers: int = 4
    faults: int = 150
    longest_calm: float = 8.0
    submit_seconds: float = 0.3
    cancels: int = 10
    shard_seconds: float = 0.1
    real: bool = True
    patience: float = 180.0

    @property
    def shards_between(self) -> float:
        """Mean number of shards finished between two faults; the last tenth is undisturbed."""
        return 0.9 * self.jobs * self.shards / max(1, self.faults)


@dataclass
class Report:
    """Report of a storm."""

    plan: Plan
    calm_seconds: float = 0.0
    seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    doorbells: Counter[str] = field(default_factory=Counter)
    users: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def lines(self) -> Iterable[str]:
        """For people."""
        plan = self.plan
        yield f"storm of seed {plan.seed}"
        yield f"  {plan.jobs} jobs of about {plan.shards} shards, {plan.workers} workers"
        yield f"  undisturbed    {self.calm_seconds:.0f} s"
        yield f"  in the storm   {self.seconds:.0f} s"
        for title, counter in (
            ("faults", self.faults),
            ("doorbells", self.doorbells),
            ("users", self.users),
            ("why retried", self.errors),
            ("found", self.counts),
        ):
            yield f"  {title}: " + ", ".join(f"{name} {count}" for name, count in sorted(counter.items()))
        yield f"  problems: {len(self.problems)}"
        yield from (f"    {problem}" for problem in self.problems[:40])


def run(plan: Plan, folder: Path) -> Report:
    """Run the jobs twice and compare."""
    report, asked = Report(plan), wishes(plan.seed, plan.jobs, plan.shards, real=plan.real)
    with Servers() as servers:
        begun = time.monotonic()
        calm = _undisturbed(servers, plan, folder / "calm", asked, report)
        report.calm_seconds = time.monotonic() - begun
        begun = time.monotonic()
        cluster = Cluster(servers, "storm", folder / "storm", plan.workers, f"seconds={plan.shard_seconds}")
        try:
            users = _storm(cluster, plan, asked, report)
        finally:
            codes = cluster.stop()
        report.seconds = time.monotonic() - begun
        _gone(cluster)
        report.counts = verdict.counts(cluster)
        report.problems += [f"a worker ended with exit code {code}" for code in codes if code != 0]
        report.problems += verdict.problems(cluster, asked, users.ids)
        report.problems += verdict.differences(calm, verdict.results(cluster, users.ids))
        report.problems += [f"log: {line[:300]}" for line in verdict.defects(cluster.logs)]
        if report.problems:
            verdict.dump(cluster, folder / "storm" / "tables")
    return report


def _undisturbed(
    servers: Servers, plan: Plan, folder: Path, asked: list[Wish], report: Report
) -> dict[str, object]:
    """Only two supervisors in this process, as in the embedded mode."""
    site = Site(servers, "calm", folder)
    chosen = settings(
        site.state, evaluator_command=site.evaluator, shard_seconds=float(SETTINGS["ASSAY_SHARD_SECONDS"])
    )
    with site.store() as store, supervising(store, chosen, count=2):
        users = Users(store, asked, plan.seed, lambda job_id: None)
        users.start()
        _wait(users, site, plan, lambda: None)
        users.stop()
        users.join()
    report.problems += [f"calm: {problem}" for problem in verdict.problems(site, asked, users.ids)]
    return verdict.results(site, users.ids)


def _storm(cluster: Cluster, plan: Plan, asked: list[Wish], report: Report) -> Users:
    faults, doorbell = Faults(cluster, plan.seed), BadDoorbell(cluster.servers.redis.url, plan.seed)
    with cluster.store() as store, contextlib.closing(doorbell):
        users = Users(store, asked, plan.seed, doorbell.ring, pause=plan.submit_seconds, cancels=plan.cancels)
        users.start()
        watch = _Watch(cluster, plan.patience)
        while users.is_alive() and not users.finished and sum(faults.done.values()) < plan.faults:
            _lull(watch, plan, faults.draw.uniform(0.2, 1.8))
            faults.strike()
        log.info(
            "%s after %d faults",
            "all done" if users.finished else "the sky clears",
            sum(faults.done.values()),
        )
        faults.end()
        _wait(users, cluster, plan, cluster.revive)
        users.stop()
        users.join()
    report.faults, report.doorbells = faults.done, doorbell.done
    report.users, report.errors = users.done, users.errors
    if users.failure is not None:
        report.problems.append(f"the users gave up: {users.failure!r}")
    return users


def _wait(users: Users, site: Site, plan: Plan, revive: Callable[[], object]) -> None:
    watch = _Watch(site, plan.patience)
    while users.is_alive() and not users.finished and watch.look():
        revive()
        time.sleep(0.2)


def _lull(watch: _Watch, plan: Plan, share: float) -> None:
    """Wait until the next fault is due."""
    until, deadline = watch.done + share * plan.shards_between, time.monotonic() + share * plan.longest_calm
    while watch.look() and watch.done < until and time.monotonic() < deadline:
        time.sleep(0.1)


class _Watch:
    """Detects when no shard finishes any more."""

    def __init__(self, site: Site, patience: float) -> None:
        self._site, self._patience = site, patience
        self.done, self._since = 0, time.monotonic()

    def look(self) -> bool:
        """Whether shards are still being finished, as far as can be seen."""
        try:
            done = verdict.rows(self._site.url, "SELECT count(*) AS n FROM shards WHERE state = 'done'")[0][
                "n"
            ]
        except Exception as error:
            log.info("no look at the database: %s", error)
            return True
        if done != self.done:
            self.done, self._since = done, time.monotonic()
        return time.monotonic() - self._since < self._patience


def _gone(cluster: Cluster) -> None:
    """Evaluators whose supervisor was killed end by themselves; give them a moment."""
    deadline = time.monotonic() + GONE_SECONDS
    while cluster.evaluators() and time.monotonic() < deadline:
        time.sleep(0.1)


def main() -> int:
    """Run a storm; 0 when nothing was lost."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--shards", type=int, default=20)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--faults", type=int, default=150)
    parser.add_argument("--keep", type=Path, default=None)
    given = parser.parse_args()
    seed = secrets.randbelow(10**6) if given.seed is None else given.seed
    # So that servers and workers are stopped on exit.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    for name in ("alembic", "workers"):  # the undisturbed run works in this process
        logging.getLogger(name).setLevel(logging.WARNING)
    folder = given.keep or Path(tempfile.mkdtemp(prefix=f"assay-storm-{seed}-"))
    print(f"storm of seed {seed} in {folder}", flush=True)
    plan = Plan(seed, given.jobs, given.shards, given.workers, given.faults)
    report = run(plan, folder)
    print("\n".join(report.lines()))
    if report.problems:
        print(f"kept: {folder}")
        return 1
    if given.keep is None:
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
