"""The API process of the distributed mode; the workers run elsewhere (`workers.nodes`).

    python -m assay.service.server

Any number of them may run on one database. Without the database it starts all the same, and answers 503.
"""

from __future__ import annotations

from assay.service.contract.extras import require_to_run

if __name__ == "__main__":
    require_to_run("assay.service.server", "service")

import signal
import sys
from collections.abc import Sequence
from contextlib import closing
from functools import partial

from assay.service.app import create_app
from assay.service.contract import logs
from assay.service.dispatch import CeleryDispatcher
from assay.service.serving import CANNOT_START, WRONG_SETTINGS, CannotStart, declare, listen, run, unwind
from assay.service.settings import Settings
from assay.service.store.connections import settings_of
from assay.service.sweeper import Sweeper


def main(arguments: Sequence[str] = ()) -> int:
    """Serve until SIGINT or SIGTERM.

    `arguments`: of the command line; it takes none. Returns 0 after a signal, 1 when the service could not
    start, 2 for wrong settings.
    """
    settings = settings_of(Settings, "assay.service.server", __doc__, arguments)
    if settings is None:
        return WRONG_SETTINGS
    if settings.mode != "distributed":
        sys.stderr.write(
            "ASSAY_MODE: this is the server of the distributed mode; the embedded one is `assay serve`\n"
        )
        return WRONG_SETTINGS
    logs.set_up(settings.log_level, settings.log_format)
    signal.signal(signal.SIGTERM, unwind)
    try:
        with (
            closing(listen(settings.host, settings.port)) as listener,
            closing(CeleryDispatcher(settings.redis)) as dispatcher,
        ):
            app = create_app(settings, dispatcher=dispatcher, prepare=partial(declare, settings))
            with closing(Sweeper(app.state.store)):
                run(app, listener, settings.log_level)
    except CannotStart as error:
        sys.stderr.write(f"{error}\n")
        return CANNOT_START
    except KeyboardInterrupt:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
