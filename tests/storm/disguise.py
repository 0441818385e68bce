"""What a process of the storm pretends to be: another version, a liar, or a process on a full disk.

The launchers of boxes, nodes, evaluators and API processes call `put_on` before they import what they start.
No product code knows of it. `Disguise` travels as JSON in the variable STORM_DISGUISE.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
from dataclasses import asdict, dataclass
from errno import ENOSPC
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import Connection

from assay.service.contract import extras
from assay.service.contract.fleet.worker_records import WorkerIdentity
from assay.service.contract.limits import Limits
from assay.workers import identity as identities

VARIABLE = "STORM_DISGUISE"
# The loss of every row that a liar measures: no honest evaluator gives it.
LIE = -666.0
Lie = Literal["", "code", "exchanged", "mixed", "data", "idle", "breaks"]
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


@dataclass(frozen=True)
class Disguise:
    """One process's role.

    Attributes:
        node: identity of the worker, as it registers and claims.
        evaluator: identity of its evaluators; another one where a program was exchanged under a worker.
        lie: what is wrong with it; empty for an honest one.
        mark: a file that a liar makes at its first lie.
        full: while this file is there, writing under `state` fails as on a full disk; empty: never.
        state: the state folder.
        seed: of an API process's doorbell.
        revisions: folder of the revisions that this version has beside the product's; empty: none.
    """

    node: WorkerIdentity
    evaluator: WorkerIdentity
    lie: Lie = ""
    mark: str = ""
    full: str = ""
    state: str = ""
    seed: int = 0
    revisions: str = ""

    @property
    def text(self) -> str:
        """For the environment."""
        return json.dumps(asdict(self))


def present() -> Disguise:
    """That of this process; an honest one of this version where the environment has none."""
    if VARIABLE not in os.environ:
        return Disguise(identities.identity(), identities.identity())
    return Disguise(**json.loads(os.environ[VARIABLE]))


def version_of(name: str) -> WorkerIdentity:
    """The identity of a version of the storm: this one with another hash of its source; "" is this one."""
    mine = identities.identity()
    if not name:
        return mine
    source = hashlib.sha256(f"{name} {mine['source_sha256']}".encode()).hexdigest()
    digest = hashlib.sha256(f"{name} {mine['digest']}".encode()).hexdigest()[: len(mine["digest"])]
    return {**mine, "source_sha256": source, "digest": digest}


def put_on(chosen: Disguise, identity: WorkerIdentity) -> None:
    """Make this process one of an identity. To be called before what asks for it is imported."""
    code = {
        "version": extras.version_of(extras.DISTRIBUTION),
        "commit": None,
        "source_sha256": identity["source_sha256"],
    }
    # The source as it is now: the evaluators', also where it was exchanged under the worker.
    now = chosen.evaluator["source_sha256"]
    changed: dict[str, Any] = {
        "identity": lambda: identity,
        "code": lambda: code,
        "source_sha256": lambda _: now,
    }
    for name, value in changed.items():
        setattr(identities, name, value)
    if chosen.full:
        fill_up(Path(chosen.full), Path(chosen.state))


def measure_only(of: str = "") -> None:
    """Claim only what is planned: what a liar plans would rightly be measured by its own kind.

    Args:
        of: how the ids of the workers begin that claim so.
    """
    from assay.service.store import shards
    from assay.service.store.transactions import claim

    candidate, lanes_of, asking = shards.candidate, claim.lanes_of, threading.local()

    def asked(connection: Connection, claimer: claim.Claimer, defaults: Limits) -> claim.Candidate | None:
        asking.measures = claimer.worker.startswith(of)
        return candidate(connection, claimer, defaults)

    shards.candidate = asked
    claim.lanes_of = lambda *given: [
        lane for lane in lanes_of(*given) if lane.identity or not asking.measures
    ]


def fill_up(flag: Path, state: Path) -> None:
    """Let this process's writing fail as on a full disk while a file is there, where none can be mounted."""
    below = f"{state}{os.sep}"

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in ("open", "os.mkdir") or not str(arguments[0]).startswith(below):
            return
        if (event == "os.mkdir" or arguments[2] & WRITING) and os.path.exists(flag):
            raise OSError(ENOSPC, os.strerror(ENOSPC), str(arguments[0]))

    sys.addaudithook(hook)
