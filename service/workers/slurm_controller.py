"""Keeps as many workers asked for as there is work: the loop of `assay fleet slurm`.

It keeps nothing between two rounds: what it has asked for is in Slurm's queue, the work in the service.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from assay.service.client import AssayClient
from assay.service.contract.errors import AssayError
from assay.service.workers import slurm_queue
from assay.service.workers.fleet_wire import FleetReport, FleetStatus, Phase
from assay.service.workers.slurm import SlurmFleet
from assay.service.workers.slurm_queue import SlurmJobs, SlurmUnavailable

ENGINE = "Slurm"
FIRST = 4  # Workers that are tried before any is known to find work


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

    def run(self, stopping: threading.Event, told: Callable[[str], None]) -> None:
        """Rounds until it is stopped; a service or a Slurm that is away is asked again. `told`: news."""
        last = ""
        while not stopping.is_set():
            try:
                said = self.round()
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
        jobs = self._jobs()
        status = self._report(jobs, self._phase)
        self._phase = "runs"
        done = self._scale(jobs, status)
        if done:
            self._report(self._jobs())
        because = f" ({jobs.reason}{slurm_queue.remedy(jobs.reason)})" if jobs.reason else ""
        work = f"{status.queued} shards queued, {status.busy} running"
        return (
            f"{work}{_withheld(status)}; {jobs.running} workers, {len(jobs.pending)} pending{because}{done}"
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
            pending=len(jobs.pending),
            reason=jobs.reason,
            phase=phase,
        )
        return self._client.report_fleet(fleet.name, report)

    def _scale(self, jobs: SlurmJobs, status: FleetStatus) -> str:
        slurm_queue.give_up(jobs.held, "")
        gone = f"; gave {len(jobs.held)} up that Slurm holds" if jobs.held else ""
        slurm_queue.give_up(jobs.stale)
        if jobs.stale:
            gone += f"; gave {len(jobs.stale)} pending up that were asked for with other options"
        missing = wanted(self._fleet.max, status.queued, status.busy) - jobs.running - len(jobs.pending)
        if missing > 0:
            arrays = slurm_queue.submit(self._script, missing)
            return f"{gone}; asked for {missing} more (array {', '.join(arrays)})"
        extra = jobs.pending[missing:] if missing < 0 else ()
        if extra:
            slurm_queue.give_up(extra)
            return f"{gone}; gave {len(extra)} pending up"
        return gone


def _withheld(status: FleetStatus) -> str:
    if not status.withheld:
        return ""
    why = "for other code (`assay replan`), or by a tenant's limit"
    if status.refused:
        why = f"for its code, {status.identity}, is {status.refused}: upgrade the nodes and start this again"
    return f", {status.withheld} withheld {why}"
