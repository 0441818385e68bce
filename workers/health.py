"""Health check of the worker container: whether the database has a recent heartbeat of this machine."""

from __future__ import annotations

from assay.service.contract.extras import require_to_run

if __name__ == "__main__":
    require_to_run("assay.workers.health", "worker")

import sys

from pydantic import ValidationError
from pydantic_settings import SettingsError
from sqlalchemy.exc import DBAPIError

from assay.service.store.connections import wrong_settings
from assay.service.store.database import Database
from assay.service.store.fleet import lease_owner
from assay.service.store.fleet.workers import Workers
from assay.workers.settings import WorkerSettings

UNHEALTHY = 1


def main() -> int:
    """0 for a heartbeat of this machine's supervisors in the last minute, else 1."""
    try:
        # The whole store takes seconds to import on a busy machine.
        database = Database(WorkerSettings().database)
        alive = Workers(database).online("auto", host=lease_owner.host(), cordoned=True)
        database.close()
    except (ValidationError, SettingsError) as error:
        return _unhealthy("\n".join(wrong_settings(error)))
    except DBAPIError as error:
        return _unhealthy(f"the database does not answer: {' '.join(str(error.orig).split())}")
    if not alive:
        return _unhealthy("no supervisor of this machine gave a sign of life in the last minute")
    sys.stdout.write(f"supervisors alive: {alive}\n")
    return 0


def _unhealthy(reason: str) -> int:
    sys.stderr.write(f"{reason}\n")
    return UNHEALTHY


if __name__ == "__main__":
    sys.exit(main())
