"""Keeps as many workers asked for as there is work: the loop of `assay fleet slurm`.

What it has asked for is in Slurm's queue, the work in the service. Between two rounds it keeps only what it
learns of workers that end unheard, and of their nodes; a controller that is started again tries them again.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from assay.service.client import AssayClient
from assay.service.contract.errors import AssayError, Forbidden, Unauthorized
from assay.service.contract.fleet.workers import LOG_FOLLOWS
from assay.service.workers import slurm_queue
from assay.service.workers.fleet_wire import FleetReport, FleetStatus, Phase
from assay.service.workers.slurm import SlurmFleet
from assay.service.workers.slurm_queue import SlurmJobs, SlurmUnavailable

ENGINE = "Slurm"
FIRST = 4  # Workers that are tried before any is known to find work
MAX_WAIT_SECONDS = 300.0  # Before another worker is tried, where the last ended unheard
BAD_NODE_ENDS = 3  # Unheard on a node since one was heard there, while others are heard
AVOIDED_SECONDS = 3600.0
MAX_REASON = 200
TAIL_BYTES = 4096
LINE_LENGTH = 80  # Its end says most, as after a shell's path


def wanted(most: int, queued: int, busy: int) -> int:
    """Workers that there is work for.

    At most twice as many as are busy, and `FIRST`: shards that no worker of the fleet may take, as it lacks
    their data, must not keep all its machines. The service does not count shards of other code.
    """
    return min(most, busy + min(queued, busy + FIRST))


class SlurmController:
    """Reports Slurm's jobs of a fleet to the service, and asks for workers or gives pending workers up."""

    def __init__(self, fleet: SlurmFleet, client: AssayClient, script: str) -> None:
        self._fleet, self._client, self._script = fleet, client, script
        self._phase: Phase = "begins"
        self._known: frozenset[str] = frozenset()  # numbers of the fleet's jobs in Slurm, not heard so far
        self._heard: frozenset[str] = frozenset()  # numbers of the others
        self._ends: Counter[str] = Counter()  # unheard, by node
        self._avoided: dict[str, float] = {}  # nodes, with the time at which they are tried again
        self._refused = self._dead = ""  # why Slurm, or its nodes, have no worker
        self._deaths, self._again_at = 0, float("-inf")

    def run(self, stopping: threading.Event, told: Callable[[str], None]) -> None:
        """Rounds until it is stopped; a service or a Slurm that is away is asked again. `told`: news.

        Raises Unauthorized, Forbidden: the service refuses the controller's key.
        """
        last = ""
        while not stopping.is_set():
            try:
                said = self.round()
            except (Unauthorized, Forbidden):
                raise
            except (SlurmUnavailable, AssayError) as error:
                said = f"not scaled: {error}"
            if said != last:
                told(said)
            last = said
            stopping.wait(self._fleet.every)
        with suppress(SlurmUnavailable, AssayError):  # else it is away after a while
            self._report(self._jobs(), "ends")

    def round(self) -> str:
        """One look at both queues; what it found and did, in words."""
        jobs, trouble = self._jobs(), self._trouble
        status = self._report(jobs, self._phase)
        self._phase = "runs"
        self._look_for_deaths(jobs, status)
        try:
            done = self._scale(jobs, status)
        except SlurmUnavailable as error:
            self._refused = str(error)
            self._report(self._jobs())
            raise
        if done or self._trouble != trouble:
            self._report(self._jobs())
        reason = jobs.reason and f"{jobs.reason}{slurm_queue.remedy(jobs.reason)}"
        because = "; ".join(filter(None, (self._trouble or reason, self._shunned)))
        because = because and f" ({because})"
        work = f"{status.queued} shards queued, {status.busy} running"
        return (
            f"{work}{_withheld(status)}; {jobs.running} workers, {len(jobs.pending) + len(jobs.delayed)}"
            f" pending{because}{done}"
        )

    def _jobs(self) -> SlurmJobs:
        return slurm_queue.jobs_of(self._fleet.name, self._script)

    def _report(self, jobs: SlurmJobs, phase: Phase = "runs") -> FleetStatus:
        fleet = self._fleet
        report = FleetReport(
            engine=ENGINE,
            device=fleet.device,
            most=fleet.max,
            running=jobs.running,
            pending=len(jobs.pending) + len(jobs.delayed),
            reason=(self._trouble or jobs.reason or self._shunned)[:MAX_REASON],
            phase=phase,
        )
        return self._client.report_fleet(fleet.name, report)

    @property
    def _trouble(self) -> str:
        return self._refused or self._dead

    @property
    def _shunned(self) -> str:
        nodes = ", ".join(sorted(self._avoided))
        return nodes and f"no worker is asked for on {nodes}: {BAD_NODE_ENDS} or more ended there unheard"

    def _look_for_deaths(self, jobs: SlurmJobs, status: FleetStatus) -> None:
        """Notes workers that ended before the service heard of them.

        Where it hears of none, each such round doubles the wait; else the fault is their node's.
        """
        names = status.names or []
        self._heard = self._heard.union(name.rpartition(".")[2] for name in names)
        gone = self._known - jobs.ids - self._heard
        self._heard &= jobs.ids
        self._known = jobs.ids - self._heard
        # A worker may be heard and end between two looks.
        besides = ("CANCELLED", "COMPLETED") if self._fleet.idle <= self._fleet.every else ("CANCELLED",)
        known = gone and status.names is not None
        ends = slurm_queue.ended(self._fleet.name, gone, besides) if known else []
        if names or status.names is None:
            self._deaths, self._dead = 0, ""
            self._judge_nodes(names, ends)
        elif ends:
            self._deaths += 1
            wait = min(MAX_WAIT_SECONDS, self._fleet.every * 2**self._deaths)
            self._again_at = time.monotonic() + wait
            number, node = ends[0]
            log = f"{self._fleet.logs.rstrip('/')}/{self._fleet.name}-{number}.log"
            said = f"{len(ends)} ended before the service heard of any, another is tried after {wait:.3g} s"
            place = f"{said}{LOG_FOLLOWS}{log} on {node or 'its node'}"
            self._dead = ": ".join(filter(None, (place, _last_line(log))))

    def _judge_nodes(self, names: list[str], ends: list[tuple[str, str]]) -> None:
        for name in names:
            host = name.rpartition(":")[0].rpartition(":")[2].partition(".")[0]
            self._ends.pop(host, None)
        self._ends.update(node for _, node in ends if node)
        now = time.monotonic()
        bad = [node for node, count in self._ends.items() if count >= BAD_NODE_ENDS]
        for node in bad:
            del self._ends[node]
        kept = {node: until for node, until in self._avoided.items() if until > now}
        self._avoided = kept | dict.fromkeys(bad, now + AVOIDED_SECONDS)

    def _give_up(self, jobs: tuple[str, ...], state: str = slurm_queue.PENDING) -> None:
        slurm_queue.give_up(jobs, state)
        self._known -= {*jobs}

    def _scale(self, jobs: SlurmJobs, status: FleetStatus) -> str:
        self._give_up(jobs.held, "")
        gone = f"; gave {len(jobs.held)} up that Slurm holds" if jobs.held else ""
        self._give_up(jobs.stale)
        if jobs.stale:
            gone += f"; gave {len(jobs.stale)} pending up that were asked for with other options"
        need = wanted(self._fleet.max, status.queued, status.busy)
        idle = jobs.delayed[max(0, need - jobs.running) :]  # others have started in their place
        self._give_up(idle)
        if idle:
            gone += f"; gave {len(idle)} up that were requeued"
        missing = need - jobs.running - len(jobs.pending)
        if missing > 0:  # those in place of delayed jobs do not exceed the limit either
            kept = len(jobs.delayed) - len(idle)
            missing = max(0, min(missing, self._fleet.max - jobs.running - len(jobs.pending) - kept))
        if missing > 0 and self._deaths:
            due = time.monotonic() >= self._again_at and not jobs.running and not jobs.pending
            missing = 1 if due else 0
        if missing > 0:
            # Where no worker is heard, all nodes may be bad: Slurm would refuse a job without a node.
            arrays = slurm_queue.submit(self._script, missing, self._avoided if status.names else ())
            asked = (f"{array}_{task}" for array, size in arrays.items() for task in range(1, size + 1))
            self._refused, self._known = "", self._known.union(asked)
            return f"{gone}; asked for {missing} more (array {', '.join(arrays)})"
        self._refused = ""
        extra = jobs.pending[missing:] if missing < 0 else ()
        if extra:
            self._give_up(extra)
            return f"{gone}; gave {len(extra)} pending up"
        return gone


def _last_line(log: str) -> str:
    """The end of the last line of a log that is this user's and can be read here; else empty."""
    try:
        file = os.open(log, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    with open(file, "rb") as lines:
        facts = os.fstat(file)
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.getuid():
            return ""
        lines.seek(max(0, facts.st_size - TAIL_BYTES))
        found = lines.read().decode(errors="replace").split("\n")
    last = next((line for line in reversed(found) if line.strip()), "")
    return "".join(letter for letter in last if letter.isprintable())[-LINE_LENGTH:]


def _withheld(status: FleetStatus) -> str:
    if not status.withheld:
        return ""
    why = "for other code (`assay replan`), or by a tenant's limit"
    if status.refused:
        why = f"for its code, {status.identity}, is {status.refused}: upgrade the nodes and start this again"
    return f", {status.withheld} withheld {why}"
