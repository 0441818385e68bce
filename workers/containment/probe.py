"""Which parts of the containment this machine lacks, found by trying.

    python -P -m assay.workers.containment.probe

A process contains itself as an evaluator is contained under the environment's settings, and the missing parts
are printed as a JSON object.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from pydantic import ValidationError
from pydantic_settings import SettingsError

from assay.service.contract.fleet.worker_records import ContainmentRecord, refused_parts
from assay.service.store.connections import wrong_settings
from assay.workers.containment.contain import PARTS, contain, demanded, in_words, refusal
from assay.workers.containment.limits import Limits
from assay.workers.containment.policy import Policy, users_here
from assay.workers.containment.settings import from_environment
from assay.workers.devices import device_classes
from assay.workers.settings import WorkerSettings

log = logging.getLogger(__name__)
SECONDS = 120.0
HERE = "--here"


@cache
def missing_parts(variables: tuple[tuple[str, str], ...] = ()) -> Mapping[str, str]:
    """The missing parts with reasons, tried once; `variables`: to try an evaluator's user too."""
    if sys.platform != "linux":
        return dict.fromkeys(PARTS, f"not on {sys.platform}")
    command = [sys.executable, "-P", "-m", "assay.workers.containment.probe", HERE]
    packages = str(Path(__file__).absolute().parents[3])
    path = os.pathsep.join(filter(None, [packages, os.environ.get("PYTHONPATH")]))
    environment = {"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": path, **dict(variables)}
    try:
        done = subprocess.run(  # noqa: S603 (our own program)
            command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=True
        )
        found: dict[str, str] = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return dict.fromkeys(PARTS, f"the trial failed: {error}")
    return found


def demanded_parts(variables: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    """The missing parts without which evaluators are not wholly contained."""
    chosen = from_environment(dict(variables))
    return demanded(missing_parts(variables), None if chosen is None else chosen.users)


def why_refused(variables: tuple[tuple[str, str], ...]) -> str | None:
    """Why no evaluator may start; None where evaluators may; tried where parts are demanded."""
    chosen = from_environment(dict(variables))
    if chosen is None or not chosen.demands:
        return None
    return refusal(demanded_parts(variables), chosen.mode)


class Sandbox:
    """What a supervisor knows of the containment of its evaluators."""

    def __init__(self, variables: tuple[tuple[str, str], ...]) -> None:
        chosen = from_environment(dict(variables))
        assert chosen is not None
        self._mode, self._demands, self._variables = chosen.mode, chosen.demands, variables
        self._compiles = chosen.mode == "off" or chosen.compiles
        self._optional: Mapping[str, str] = {}
        self._missing: Mapping[str, str] | None = (
            dict.fromkeys(PARTS, "ASSAY_SANDBOX=off") if chosen.mode == "off" else None
        )

    def find_out(self) -> None:
        """Try, once; logs what is missing. Waits only where work depends on it."""
        if self._demands:
            self._try()
        elif self._mode == "off":
            log.warning("evaluators are not contained: ASSAY_SANDBOX=off")
        else:
            threading.Thread(target=self._try, name="containment", daemon=True).start()

    def _try(self) -> None:
        self._missing = demanded_parts(self._variables)
        found = missing_parts(self._variables)
        self._optional = {part: found[part] for part in found.keys() - self._missing.keys()}
        if self._optional:
            log.info("containment without optional parts: %s", in_words(self._optional))
        if (problem := refusal(self._missing, self._mode)) is not None:
            log.error("this worker takes no work: %s", problem)
        elif self._missing:
            log.warning("evaluators are not wholly contained; missing: %s", in_words(self._missing))

    @property
    def refuses(self) -> bool:
        """Whether no evaluator may start here."""
        return bool(refused_parts(self._mode, self._missing or ()))

    @property
    def record(self) -> ContainmentRecord | None:
        """For the heartbeat; None before the trial has ended."""
        if self._missing is None:
            return None
        return {
            "mode": self._mode,
            "missing": [*self._missing],
            "optional": [*self._optional],
            "compiles": self._compiles,
        }


def main(arguments: Sequence[str] = ()) -> int:
    """Try, and print."""
    if HERE not in arguments:
        try:
            sys.stdout.write(f"{json.dumps(missing_parts(WorkerSettings().trial))}\n")
        except (ValidationError, SettingsError) as error:
            sys.exit("\n".join(wrong_settings(error)))
        return 0
    chosen, gpu = from_environment(os.environ), "cuda" in device_classes()
    users = None if chosen is None else users_here(chosen, os.environ, gpu=gpu)
    with tempfile.TemporaryDirectory() as folder:
        pid = os.fork()
        if pid == 0:
            here = Path(folder)
            trial = Policy(
                folder=here,
                files=frozenset(),
                libraries=(),
                temporary=here,
                limits=Limits(memory=1 << 32, processor_seconds=60, file_bytes=1 << 30),
                processes=True,
                loopback=True,
                gpu=gpu,
                users=users,
            )
            os.write(1, json.dumps(contain(trial)).encode())
            os._exit(0)
        os.waitpid(pid, 0)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
