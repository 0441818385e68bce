"""The Python client's calls for workers and their code; they need the scope `admin`."""

from __future__ import annotations

from assay.service.client.transport import API, Connection, parsed, part
from assay.service.contract.fleet.workers import IdentityStatus, WorkerStatus
from assay.service.contract.results import Page
from assay.service.workers.fleet_wire import FleetReport, FleetStatus


class WorkerCalls(Connection):
    """Lists workers, takes them out of service, and rules on the code that may take work."""

    def workers(self) -> list[WorkerStatus]:
        """All workers that gave a sign of life within a day or are cordoned, by name."""
        return parsed(Page[WorkerStatus], self._json("GET", f"{API}/workers")).items

    def cordon_worker(self, name: str) -> WorkerStatus:
        """Lets a worker end its shard and take no other, even restarted; NotFound names the nearest."""
        return self._worker(name, "cordon")

    def drain_worker(self, name: str) -> WorkerStatus:
        """As `cordon_worker`; its running shard goes back to the queue too, uncounted."""
        return self._worker(name, "drain")

    def uncordon_worker(self, name: str) -> WorkerStatus:
        """Puts a worker back into service."""
        return self._worker(name, "uncordon")

    def fleets(self) -> list[FleetStatus]:
        """Fleets whose controllers reported within a day, by name."""
        return parsed(Page[FleetStatus], self._json("GET", f"{API}/workers/fleets")).items

    def report_fleet(self, name: str, report: FleetReport) -> FleetStatus:
        """Reports a fleet, and says how much work there is for it."""
        path = f"{API}/workers/fleets/{part(name)}"
        return parsed(FleetStatus, self._json("PUT", path, body=report.model_dump(mode="json")))

    def try_gateway(self, key: str) -> None:
        """Calls the gateway as a worker with this key would. Raises Unauthorized, Forbidden."""
        sent = {"Authorization": f"Bearer {key}" if key else ""}
        body = {"device": "cpu", "devices": 1, "besides": "none"}
        self._call("POST", f"{API}/worker/online", headers=sent, body=body)

    def identities(self) -> list[IdentityStatus]:
        """What the service declares of its workers' code, and what administrators have ruled."""
        return parsed(Page[IdentityStatus], self._json("GET", f"{API}/workers/identities")).items

    def allow_identity(self, digest: str) -> IdentityStatus:
        """Lets workers without the service's own code take work; InvalidSpec: no digest of an identity."""
        return self._identity(digest, "allow")

    def withdraw_identity(self, digest: str) -> IdentityStatus:
        """Gives workers of an identity no more work; the jobs that they have planned wait."""
        return self._identity(digest, "withdraw")

    def _identity(self, digest: str, action: str) -> IdentityStatus:
        path = f"{API}/workers/identities/{part(digest)}/{action}"
        return parsed(IdentityStatus, self._json("POST", path))

    def _worker(self, name: str, action: str) -> WorkerStatus:
        return parsed(WorkerStatus, self._json("POST", f"{API}/workers/{part(name)}/{action}"))
