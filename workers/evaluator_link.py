"""Ties a process to its parent: it ends with the process that started it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1

REQUESTS = "ASSAY_REQUESTS_FD"
REPORTS = "ASSAY_REPORTS_FD"


def die_with_parent(parent: int | None = None) -> None:
    """Ask the kernel to kill this process with the thread that started it (Linux only)."""
    # A parent that is already dead is noticed by its expected id only.
    parent = os.getppid() if parent is None else parent
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)
