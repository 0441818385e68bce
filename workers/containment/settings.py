"""How a supervisor tells its evaluators to contain themselves: one environment variable."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from assay.workers.containment.limits import NO_LIMITS, Limits
from assay.workers.containment.users import Users

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
    users: Users | None = None  # of whom each job gets one, where that is possible
    compiles: bool = False  # evaluators of jobs that ask for compiled passes may start programs

    @property
    def demands(self) -> bool:
        """Whether no evaluator starts where a part is missing that the operator demands."""
        return self.mode == "required" or (self.mode == "auto" and bool(self.users and self.users.demanded))

    @property
    def forbidden(self) -> tuple[Path, ...]:
        """The state folder and the further ones."""
        return (self.state, *self.private)

    def to_text(self) -> str:
        """For `VARIABLE`."""
        private = [str(path) for path in self.private]
        paths = {"state": str(self.state), "private": private}
        return json.dumps(asdict(self) | paths)


def from_environment(environment: Mapping[str, str] = os.environ) -> Containment | None:
    """The choices of the supervisor; None for a process that none has started."""
    text = environment.get(VARIABLE)
    if text is None:
        return None
    values = json.loads(text)
    private = tuple(map(Path, values["private"]))
    users = values["users"] and Users(**values["users"])
    parts = {"state": Path(values["state"]), "limits": Limits(**values["limits"])}
    return Containment(**values | parts | {"private": private, "users": users})
