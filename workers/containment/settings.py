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
PREFIX = "assay-evaluator-"  # Of evaluators' temporary folders; the template's process id follows
Mode = Literal["off", "auto", "required"]


@dataclass(frozen=True)
class Containment:
    """The operator's choices."""

    # "off": unrestricted evaluators; "auto": as the machine allows; "required": none where a part is missing
    mode: Mode
    state: Path  # of the service
    limits: Limits = NO_LIMITS  # of every evaluator
    private: tuple[Path, ...] = ()  # unreadable to evaluators: the database, signing keys
    users: Users | None = None  # each job gets one, where possible
    compiles: bool = False  # jobs that ask for compiled passes may start programs

    @property
    def demands(self) -> bool:
        """Whether no evaluator starts without a part that the operator demands."""
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
    """The supervisor's choices; None for a process that none has started."""
    text = environment.get(VARIABLE)
    if text is None:
        return None
    values = json.loads(text)
    private = tuple(map(Path, values["private"]))
    users = values["users"] and Users(**values["users"])
    parts = {"state": Path(values["state"]), "limits": Limits(**values["limits"])}
    return Containment(**values | parts | {"private": private, "users": users})
