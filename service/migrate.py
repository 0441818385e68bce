"""Migrates the database to the newest revision, then exits.

    python -m assay.service.migrate

Run it once before starting a new version of the service and the workers. It waits for a database that is not
up yet.
"""

from __future__ import annotations

from assay.service.contract.extras import require_to_run

if __name__ == "__main__":
    require_to_run("assay.service.migrate", "service")

import logging
import sys
import time

from pydantic import ValidationError
from pydantic_settings import SettingsError
from sqlalchemy import make_url
from sqlalchemy.exc import OperationalError

from assay.service.contract import logs
from assay.service.serving import CANNOT_START, WRONG_SETTINGS
from assay.service.store.connections import Connections, wrong_settings
from assay.service.store.store import open_store

log = logging.getLogger(__name__)
WAIT_SECONDS = 60.0
PAUSE_SECONDS = 1.0


def main(wait_seconds: float = WAIT_SECONDS) -> int:
    """Migrate the settings' database. 0 at the newest revision, 1 without database, 2 for wrong settings."""
    try:
        settings = Connections()
    except (ValidationError, SettingsError) as error:
        sys.stderr.write("".join(f"{line}\n" for line in wrong_settings(error)))
        return WRONG_SETTINGS
    logs.set_up(settings.log_level, settings.log_format)
    deadline = time.monotonic() + wait_seconds
    while True:
        try:
            open_store(settings.database).close()
        except ValueError as error:
            sys.stderr.write(f"ASSAY_DATABASE_URL: {error}\n")
            return WRONG_SETTINGS
        except OperationalError as error:
            if time.monotonic() >= deadline:
                sys.stderr.write(f"cannot open the database: {' '.join(str(error.orig).split())}\n")
                return CANNOT_START
            time.sleep(PAUSE_SECONDS)
        else:
            log.info("%s is at the newest revision", make_url(settings.database).render_as_string())
            return 0


if __name__ == "__main__":
    sys.exit(main())
