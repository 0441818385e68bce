"""Which part of the containment, and which refused call, keeps a device from passing its self-test.

    python -P -m assay.workers.diagnosis.refused_parts cuda

Every trial is a fork of this process, which has imported torch and used no device: contained by no part, by
all, by all but one, by one alone; then with fewer and fewer calls refused.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TypedDict

from assay.workers.containment.contain import PARTS, contain
from assay.workers.containment.kernel import machine
from assay.workers.containment.limits import NO_LIMITS
from assay.workers.containment.policy import Policy, libraries
from assay.workers.containment.settings import VARIABLE, Containment, from_environment
from assay.workers.containment.system_call_numbers import NUMBERS

SECONDS = 300.0
APPLIED = ("dumps", "limits", "capabilities", "files", "calls")  # Parts that refuse by themselves
Test = Callable[[], str | None]
"""What is wrong with the devices; None where all is right."""


class Refusal(TypedDict):
    """All is empty where the device fails without containment too, or passes in it."""

    parts: list[str]  # passing without, or failing by each alone
    calls: list[str]  # refused calls that keep it from passing
    fault: str  # under all parts


def find(test: Test, policy: Policy) -> Refusal:
    """Try the parts in forks of this process, which must have one thread."""

    def fault(parts: Collection[str], calls: Collection[str] | None = None) -> str | None:
        return _fault(test, policy, {*parts, "privileges"} if parts else (), calls)

    under_all = fault(PARTS)
    if under_all is None or fault(()) is not None:
        return {"parts": [], "calls": [], "fault": ""}
    parts = [
        part
        for part in APPLIED
        if fault((part,)) is not None or fault([name for name in PARTS if name != part]) is None
    ]
    calls: list[str] = []
    if "calls" in parts:
        calls = _narrowed(sorted(NUMBERS[machine()]), lambda names: fault(("calls",), names) is not None)
    return {"parts": parts, "calls": calls, "fault": under_all}


def _narrowed(names: Sequence[str], fails: Callable[[Sequence[str]], bool]) -> list[str]:
    if not fails(names):
        return []
    if len(names) == 1:
        return [*names]
    middle = len(names) // 2
    return _narrowed(names[:middle], fails) + _narrowed(names[middle:], fails) or [*names]


def _fault(test: Test, policy: Policy, parts: Collection[str], calls: Collection[str] | None) -> str | None:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            contain(policy, parts, calls)
            os.write(write, json.dumps(test()).encode())
        except BaseException as error:
            os.write(write, json.dumps(f"{type(error).__name__}: {error}").encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        text = answer.read()
    status = os.waitpid(pid, 0)[1]
    if not text:
        return f"the process ended with {os.waitstatus_to_exitcode(status)}"
    found: str | None = json.loads(text)
    return found


def ask(chosen: Containment, device_class: str) -> Refusal | None:
    """The outcome for a device class, from its own process; None without an answer."""
    command = [sys.executable, "-P", "-m", "assay.workers.diagnosis.refused_parts", device_class]
    packages = str(Path(__file__).absolute().parents[3])
    path = os.pathsep.join(filter(None, [packages, os.environ.get("PYTHONPATH")]))
    own = {VARIABLE: chosen.to_text(), "PYTHONPATH": path, "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    try:
        done = subprocess.run(  # noqa: S603 (our own program)
            command, env=os.environ | own, capture_output=True, text=True, timeout=SECONDS, check=True
        )
        found: Refusal = json.loads(done.stdout.splitlines()[-1])
    except (OSError, ValueError, IndexError, subprocess.SubprocessError):
        return None
    return found


def main(arguments: Sequence[str]) -> None:
    """Print the outcome as JSON."""
    from assay.workers.jobs import self_test

    def test() -> str | None:
        report = self_test.run(
            {"kind": "self_test", "folder": "", "weights": None, "device_classes": list(arguments)}
        )
        return next((one["fault"] for one in report["devices"] if one["fault"] is not None), None)

    chosen = from_environment()
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        os.environ["CUDA_CACHE_PATH"] = folder
        policy = Policy(
            folder=here,
            files=frozenset(),
            libraries=libraries(os.environ, chosen.forbidden if chosen else ()),
            temporary=here,
            limits=chosen.limits if chosen else NO_LIMITS,
            gpu="cuda" in arguments,
        )
        sys.stdout.write(json.dumps(find(test, policy)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
