"""The catalog of the embedded service: where installed packages bring components, it is written at the start.

Nothing of those packages is imported here: another process walks them, and whatever they do to it, the
service starts, with Assay's own components at least.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

from assay.service.catalog import extra_components
from assay.service.catalog.catalog import load_with
from assay.workers.discovery.packages import installed

log = logging.getLogger(__name__)
FILE = "extra-components.json"
WALK_SECONDS = 300.0


def extend_catalog(state: Path) -> None:
    """Write a file for ASSAY_CATALOG and set that variable, if packages bring components and it is not set.

    Args:
        state: The folder for the file; it exists.
    """
    if os.environ.get(extra_components.VARIABLE):
        return
    found = installed()
    if not found:
        return
    log.info("looking for the components of %s", ", ".join(str(extension.package) for extension in found))
    file = state / FILE
    problem = _written(file)
    if problem is not None:
        log.error("serving without the components of other packages: %s", problem)
        return
    try:
        content, _ = extra_components.read(file), load_with(str(file))
    except extra_components.BadExtras as error:
        log.error("serving without the components of other packages: %s", error)
        return
    log.info("%d components of other packages, listed in %s", len(content.components), file)
    for package, reason in content.left_out.items():
        log.error("the components of %s are left out: %s", package, reason)
    # Read by this process, and handed on to its evaluators.
    os.environ[extra_components.VARIABLE] = str(file)


def _written(file: Path) -> str | None:
    """Have the file written; what went wrong, or None."""
    file.unlink(missing_ok=True)
    command = [sys.executable, "-P", "-m", "assay.workers.catalog", "--skip-broken", "--out", str(file)]
    try:
        done = subprocess.run(  # noqa: S603 (our own program)
            command,
            capture_output=True,
            text=True,
            timeout=WALK_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return f"looking for them took more than {WALK_SECONDS:.0f} s"
    if done.returncode == 0:
        return None
    said = " ".join((done.stderr or done.stdout).split())[-1000:]
    return f"looking for them ended with code {done.returncode}: {said}"
