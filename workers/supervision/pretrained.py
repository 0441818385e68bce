"""Fetches timm's pretrained weights for evaluators, which have no sockets.

A process of its own downloads them into the cache that evaluators read (`workers/weights/fetch.py`). It gets
the name of an architecture, which it checks against timm's list, and nothing else of the job.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from assay.service.contract.stored_specs import Spec
from assay.workers.settings import WorkerSettings
from assay.workers.supervision.evaluator_process import weights_caches

log = logging.getLogger(__name__)
POLL_SECONDS = 0.2
OFF = ("", "0", "false", "no", "off")
_fetched: set[tuple[str, str]] = set()
_one_at_a_time = threading.Lock()


def fetch_pretrained(spec: Spec, settings: WorkerSettings, interrupted: Callable[[], bool]) -> None:
    """Fetch the weights that a job names, once per process; returns when they are there, or cannot be.

    A failure is only logged: the evaluator, which does not find them, fails the shard with its reason.
    Nothing is fetched with HF_HUB_OFFLINE set, nor for evaluators that are not contained.

    Args:
        spec: of the job.
        settings: of the worker.
        interrupted: asked meanwhile; true ends the fetching.
    """
    model = spec["model"]
    if model.get("weights") != {"timm": True} or settings.sandbox == "off" or sys.platform != "linux":
        return
    if os.environ.get("HF_HUB_OFFLINE", "").lower() not in OFF:
        return
    name = (str(model["params"].get("architecture", "")), str(model["params"].get("tag") or ""))
    with _one_at_a_time:
        if name not in _fetched and _fetch(name, interrupted):
            _fetched.add(name)


def _fetch(name: tuple[str, str], interrupted: Callable[[], bool]) -> bool:
    command = [sys.executable, "-P", "-m", "assay.workers.weights.fetch", *name]
    hidden = ("ASSAY_", "PG", "DATABASE_URL")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(hidden)}
    begun = time.monotonic()
    try:
        process = subprocess.Popen(  # noqa: S603 (our own program)
            command, env=kept | weights_caches(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
    except OSError as error:
        log.warning("weights of %s: not fetched: %s", name[0], error)
        return False
    while process.poll() is None:
        if interrupted():
            process.kill()
        time.sleep(POLL_SECONDS)
    if process.returncode != 0:
        log.warning("weights of %s: not fetched, exit code %d", name[0], process.returncode)
        return False
    log.info("weights of %s: fetched, or there, after %.1f s", name[0], time.monotonic() - begun)
    return True
