"""How a supervisor tells its evaluators to contain themselves: one environment variable."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from assay.workers.containment.limits import NO_LIMITS, Limits

VARIABLE = "ASSAY_CONTAINMENT"
# Of the names of the evaluators' temporary folders; the process id of their template follows.
PREFIX = "assay-evaluator-"
Mode = Literal["off", "auto", "required"]


@dataclass(frozen=True)
class Containment:
    """The operator's choices."""

    # "off": evaluators run unrestricted; "auto": as this machine allows; "required": not at all where a part
    # is missing
    mode: Mode
    state: Path  # the service's state folder
    limits: Limits = NO_LIMITS  # of every evaluator
    # further files and folders that no evaluator may read: the database, the keys that sign
    private: tuple[Path, ...] = ()

    @property
    def forbidden(self) -> tuple[Path, ...]:
        """The state folder and the further ones."""
        return (self.state, *self.private)

    def to_text(self) -> str:
        """For `VARIABLE`."""
        private = [str(path) for path in self.private]
        limits = asdict(self.limits)
        return json.dumps({"mode": self.mode, "state": str(self.state), "limits": limits, "private": private})


def from_environment() -> Containment | None:
    """The choices of the supervisor; None for a process that none has started."""
    text = os.environ.get(VARIABLE)
    if text is None:
        return None
    values = json.loads(text)
    private = tuple(map(Path, values["private"]))
    return Containment(values["mode"], Path(values["state"]), Limits(**values["limits"]), private)
