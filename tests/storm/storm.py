"""Many jobs on several workers under faults; afterwards every result must exist exactly once.

    python -m tests.storm.storm [--form gateway] [--jobs 200] [--shards 20] [--workers 4] [--faults 150]
        [--seed N]

Every kind of fault strikes at least once, and further jobs come as long as one has not. The same jobs then
run undisturbed. Prints what happened. A storm that fails keeps its folder: the logs of every process, and the
tables as JSON lines.
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
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.storm import verdict
from tests.storm.access import ByHttp, ByStore
from tests.storm.cluster import NEXT, Cluster
from tests.storm.disguise import version_of
from tests.storm.faults import KILLS, OVER_GATEWAY, Fault, Faults
from tests.storm.gateway_cluster import GatewayCluster
from tests.storm.jobs import Wish, wish
from tests.storm.lies import LIES, TOGETHER
from tests.storm.site import SETTINGS, Servers, Site
from tests.storm.surroundings import SURROUNDINGS, WITHOUT_NODES
from tests.storm.users import Users
from tests.support.workers import settings, supervising

log = logging.getLogger(__name__)
GONE_SECONDS = 15.0


@dataclass(frozen=True)
class Form:
    """A way to run the service under the storm, and what strikes it: kills, surroundings and lies."""

    cluster: type[Cluster]
    faults: Mapping[str, tuple[Fault, float]]
    surroundings: Mapping[str, tuple[Fault, float]]

    @property
    def kinds(self) -> dict[str, tuple[Fault, float]]:
        """All kinds of faults."""
        return {**self.faults, **self.surroundings, **LIES}


FORMS = {
    "direct": Form(Cluster, KILLS, SURROUNDINGS),
    "gateway": Form(GatewayCluster, OVER_GATEWAY, WITHOUT_NODES),
}
# Errors of jobs that a fault explains; no fault lets a deadline pass.
EXPECTED = frozenset(
    {
        *("canceled", "save_failed", "disk_full", "mixed_identities", "dependency_failed"),
        *("evaluator_died", "evaluator_raised", "worker_raised", "no_progress", "lost_too_often"),
    }
)
# Faults that the service must name while they last.
NAMED = {*LIES, "disk full", "clock steps", "leading reapers killed"}


@dataclass(frozen=True)
class Plan:
    """Size of a storm.

    Attributes:
        jobs: at least so many; more where kinds of faults are left.
        faults: after so many, and one of each kind, the sky clears, so that what is left can be finished.
            They come in step with the shards that are finished: a slow machine sees as many as a fast one.
        longest_calm: but a fault comes after so many seconds at the latest.
        patience: a run that ends no shard for so many seconds has failed.
        shard_seconds: how long a shard of the fake evaluator takes.
        stall_seconds: after which a shard without progress is ended.
        longest: seconds of the storm after which no further fault strikes.
        form: how the service runs.
        kinds: of the faults; empty: all of the form.
        apis: how many API processes, except over the gateway.
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
    stall_seconds: float = 15.0
    longest: float = 3600.0
    form: str = "direct"
    kinds: tuple[str, ...] = ()
    apis: int = 2

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
    jobs: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    named: dict[str, str] = field(default_factory=dict)
    users: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def lines(self) -> Iterable[str]:
        """For people."""
        plan = self.plan
        yield f"storm of seed {plan.seed}, {plan.form}"
        yield f"  {self.jobs} jobs of about {plan.shards} shards, {plan.workers} workers"
        yield f"  in the storm   {self.seconds:.0f} s"
        yield f"  undisturbed    {self.calm_seconds:.0f} s"
        for title, counter in (
            ("faults", self.faults),
            ("users", self.users),
            ("why retried", self.errors),
            ("found", self.counts),
        ):
            yield f"  {title}: " + ", ".join(f"{name} {count}" for name, count in sorted(counter.items()))
        yield "  named:"
        yield from (f"    {kind}: {said}" for kind, said in sorted(self.named.items()))
        yield f"  problems: {len(self.problems)}"
        yield from (f"    {problem}" for problem in self.problems[:40])


def run(plan: Plan, folder: Path) -> Report:
    """Run the jobs twice and compare."""
    report = Report(plan)
    with Servers() as servers:
        begun = time.monotonic()
        words = f"seconds={plan.shard_seconds}"
        cluster = FORMS[plan.form].cluster(
            servers,
            "storm",
            folder / "storm",
            plan.workers,
            words,
            stall_seconds=plan.stall_seconds,
            seed=plan.seed,
            apis=plan.apis,
        )
        with contextlib.closing(cluster):
            try:
                users = _storm(cluster, plan, report)
            finally:
                codes = cluster.stop()
            report.seconds = time.monotonic() - begun
            _gone(cluster)
            report.counts, report.jobs = verdict.counts(cluster), len(users.wishes)
            report.problems += [f"a process ended with exit code {code}" for code in codes if code != 0]
            report.problems += verdict.problems(cluster, users.wishes, users.ids)
            honest = [version_of(name) for name in ("", NEXT)]
            sources = {one["digest"]: one["source_sha256"] for one in honest}
            report.problems += verdict.versions(cluster, sources, users.replanned)
            measured = verdict.results(cluster, users.ids)
            report.problems += [f"log: {line[:300]}" for line in verdict.defects(cluster.logs)]
        begun = time.monotonic()
        calm = _undisturbed(servers, plan, folder / "calm", users.wishes, report)
        report.calm_seconds = time.monotonic() - begun
        report.problems += verdict.differences(calm, measured)
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
        users = Users(ByStore(store), asked.__getitem__, plan.seed, jobs=len(asked))
        users.start()
        _wait(users, site, plan, lambda: None)
        users.stop()
        users.join()
    report.problems += [f"calm: {problem}" for problem in verdict.problems(site, asked, users.ids)]
    return verdict.results(site, users.ids)


def _storm(cluster: Cluster, plan: Plan, report: Report) -> Users:
    kinds = FORMS[plan.form].kinds
    chosen = {name: kinds[name] for name in plan.kinds or kinds}
    faults = Faults(cluster, plan.seed, chosen, TOGETHER)
    over, upgraded = threading.Event(), version_of(NEXT)["digest"]

    def outdated() -> set[str]:
        return faults.evidence.outdated(upgraded) if faults.done["rolling upgrade"] else set()

    users = Users(
        ByHttp(cluster.clients()),
        lambda number: wish(plan.seed, number, plan.shards, real=plan.real),
        plan.seed,
        jobs=plan.jobs,
        enough=over.is_set,
        outdated=outdated,
        pause=plan.submit_seconds,
        cancels=plan.cancels,
    )
    users.start()
    _strike_until_enough(cluster, plan, faults, users)
    log.info("the sky clears after %d faults", sum(faults.done.values()))
    over.set()
    faults.end()
    _wait(users, cluster, plan, cluster.revive)
    users.stop()
    users.join()
    faults.evidence.close()
    report.faults, report.named = faults.done, faults.named
    report.users, report.errors = users.done, users.errors
    report.problems += [*faults.problems, *(f"{kind} has not struck" for kind in faults.left)]
    report.problems += [
        f"{kind}: nothing has named it" for kind in sorted(NAMED & faults.done.keys() - faults.named.keys())
    ]
    report.problems += [f"a job ended with {kind}" for kind in users.errors.keys() - EXPECTED]
    if users.failure is not None:
        report.problems.append(f"the users gave up: {users.failure!r}")
    return users


def _strike_until_enough(cluster: Cluster, plan: Plan, faults: Faults, users: Users) -> None:
    watch, deadline = _Watch(cluster, plan.patience), time.monotonic() + plan.longest
    while users.is_alive() and (faults.left or sum(faults.done.values()) < plan.faults):
        _lull(watch, plan, faults.draw.uniform(0.2, 1.8))
        if not watch.look() or time.monotonic() > deadline:
            return
        cluster.revive()
        faults.strike()
        watch.begin()


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

    def begin(self) -> None:
        """Begin anew: during a fault, none may have been finished."""
        self._since = time.monotonic()

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
    parser.add_argument("--form", choices=FORMS, default="direct")
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
    for name in ("alembic", "assay.workers", "httpx"):  # the undisturbed run works in this process
        logging.getLogger(name).setLevel(logging.WARNING)
    folder = given.keep or Path(tempfile.mkdtemp(prefix=f"assay-storm-{seed}-"))
    print(f"storm of seed {seed} in {folder}", flush=True)
    plan = Plan(seed, given.jobs, given.shards, given.workers, given.faults, form=given.form)
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
