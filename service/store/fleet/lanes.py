"""Lanes with requirements: what queued shards ask of their worker beyond device class and identity.

Shards of equal requirements share a lane, so lanes are few. A worker reads them all, judges which it meets,
and claims from those by the claiming index.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, delete, exists, literal_column, select

from assay.service.catalog.catalog import load
from assay.service.contract.fleet.worker_records import LACKS_DATA, STAGES, STAGES_WEIGHTS, Requirements
from assay.service.contract.states import ShardState
from assay.service.contract.stored_specs import Spec
from assay.service.store.clock import now
from assay.service.store.columns import upsert
from assay.service.store.database import StorePart
from assay.service.store.fleet.fair_queue import Lane
from assay.service.store.fleet.identities import admitted, alive, serves, uncordoned
from assay.service.store.tables import LEFT, lanes, shards, workers
from assay.service.submission.requirements import digest_of, first_requirements

KEPT_SECONDS = 3600.0  # After so long, no transaction is still queueing a shard there
UNFINISHED = (ShardState.QUEUED, ShardState.RUNNING)
SHOWN = 3  # Workers with listed reasons, at most.


@dataclass(frozen=True)
class OpenLane:
    """A lane and the requirements of its shards."""

    lane: Lane
    stated: Requirements


@dataclass(frozen=True)
class Blocked:
    """Shards of a job with requirements that no online worker meets."""

    reasons: list[str]  # what each worker lacks, for each set of requirements
    workers: int  # how many would do otherwise
    entirely: bool  # whether no shard of the job could be claimed
    data: list[str]  # of folders that not all have: which, and how many have them


class Lanes(StorePart):
    """The lanes with requirements."""

    def all(self) -> list[OpenLane]:
        """Every lane with a shard that waits or runs."""
        with self._database.reading() as connection:
            return open_lanes(connection)

    def unmet(self, device: str, requirements: str) -> bool:
        """Whether every online worker of a device class has said that it lacks it."""
        with self._database.reading() as connection:
            told = lacking(connection, device, cordoned=True)
        # While a worker brings the data, the shard waits.
        said = [lacks.get(requirements, STAGES) for _, lacks in told]
        return bool(said) and not any(one.startswith(STAGES) for one in said)

    def prune(self) -> None:
        """Removes lanes that no unfinished shard names."""
        with self._database.writing() as connection:
            old = lanes.c.used_at < now() - KEPT_SECONDS
            connection.execute(delete(lanes).where(old, ~_has_shards()))


def _has_shards(*states: ShardState) -> ColumnElement[bool]:
    """Condition: a shard that is not done has a lane's requirements; with states, one in these."""
    named = (shards.c.requirements == lanes.c.requirements) & (shards.c.requirements != literal_column("''"))
    if states:
        named &= shards.c.state.in_([str(state) for state in states])
    return exists().where(named, LEFT)


OPENED = select(lanes).where(_has_shards(*UNFINISHED))


def open_lanes(connection: Connection) -> list[OpenLane]:
    """Every lane with a shard that waits or runs."""
    rows = connection.execute(OPENED).all()
    return [OpenLane(Lane(row.device, row.identity, row.requirements), row.stated) for row in rows]


def open_lane(connection: Connection, device: str, identity: str, stated: Requirements) -> str:
    """Makes a lane known; returns the digest of its requirements, empty for none."""
    if not stated:
        return ""
    digest = digest_of(stated)
    lane = {"device": device, "identity": identity, "requirements": digest}
    upsert(connection, lanes, {**lane, "stated": stated, "used_at": now()})
    return digest


def first_lane(connection: Connection, device: str, spec: Spec) -> str:
    """Opens the lane of a job's first shard; returns its digest, as `open_lane`."""
    stated = first_requirements(load(), spec)
    if stated.get("gpu") and not lacking(connection, "cuda"):
        return ""  # without a GPU online a program is checked on a CPU
    return open_lane(connection, device, "", stated)


def blocked(connection: Connection, job_id: str, device: str, devices: int, identity: str) -> Blocked:
    """Why shards of a planned job wait for absent workers; an empty `identity` is any."""
    queued = (shards.c.job_id == job_id) & (shards.c.state == "queued") & LEFT
    asked = connection.execute(select(shards.c.requirements).where(queued).distinct()).scalars().all()
    told = lacking(connection, device, devices, identity)
    reasons: dict[str, str] = {}
    without = {
        requirements: sum(_lacks_data(lacks.get(requirements, "")) for _, lacks in told)
        for requirements in asked
    }
    for requirements in asked:
        said = [f"{name}: {lacks[requirements]}" for name, lacks in told if requirements in lacks]
        if told and len(said) == len(told):
            shown = sorted({*said})
            more = [f"and {len(shown) - SHOWN} more"] if len(shown) > SHOWN else []
            reasons[requirements] = "; ".join([*shown[:SHOWN], *more])
    entirely = bool(asked) and len(reasons) == len(asked)
    stated = select(lanes.c.requirements, lanes.c.stated).where(
        lanes.c.requirements.in_([digest for digest, count in without.items() if count])
    )
    data = {
        f"{' and '.join(folders)} ({len(told) - without[digest]} of {len(told)} workers have it;"
        f" `assay data stage {shlex.join(folders)}` on the others)"
        for digest, asks in connection.execute(stated)
        if (folders := asks.get("folders"))
    }
    return Blocked([*dict.fromkeys(reasons.values())], len(told), entirely, sorted(data))


def read_lanes(connection: Connection) -> list[Lane]:
    """Every lane with requirements."""
    columns = (lanes.c.device, lanes.c.identity, lanes.c.requirements)
    return [Lane(*row) for row in connection.execute(select(*columns))]


def lacking(
    connection: Connection, device: str, devices: int = 1, identity: str = "", *, cordoned: bool = False
) -> list[tuple[str, dict[str, str]]]:
    """Each worker that takes work of a device class: its name, and why it lacks what, by digest."""
    # "auto" or "checks" is any class, an empty `identity` any code; the worker has at least so many
    # `devices`. `cordoned` includes workers out of service.
    able = alive() & (workers.c.devices >= devices) & admitted()
    if not cordoned:
        able &= uncordoned()
    statement = select(workers.c.worker, workers.c.name, workers.c.gauges).where(able)
    if device not in ("auto", "checks"):
        statement = statement.where(serves(device))
    if identity:
        statement = statement.where(workers.c.identity == identity)
    rows = connection.execute(statement.order_by(workers.c.seen_at)).all()
    return [(row.name or row.worker, (row.gauges or {}).get("lacks", {})) for row in rows]


def _lacks_data(reason: str) -> bool:
    return reason.startswith(LACKS_DATA) and not reason.startswith(STAGES_WEIGHTS)
