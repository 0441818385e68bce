"""Which code may take work: declared identities, and rulings of administrators.

A service declares its own release when it starts. From then on a worker of another source takes no shard
until an administrator allows its identity's digest. Without a declaration any worker may; a withdrawn digest
never.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Table,
    bindparam,
    case,
    delete,
    exists,
    func,
    literal,
    select,
    update,
)

from assay.service.contract.audit import Action
from assay.service.contract.fleet.release import release_names, release_text
from assay.service.contract.fleet.worker_records import CodeProvenance
from assay.service.contract.fleet.workers import Admission
from assay.service.store.audit import Actor, record
from assay.service.store.clock import now
from assay.service.store.columns import PlainText, upsert
from assay.service.store.database import StorePart
from assay.service.store.tables import cordons, fleets, identities, workers

ONLINE_SECONDS = 60.0
DECLARED: Admission = "declared"
ALLOWED: Admission = "allowed"
WITHDRAWN: Admission = "withdrawn"
OWN = "the service: its own release"
SETTING = "ASSAY_ALLOWED_IDENTITIES"


@dataclass(frozen=True)
class Ruling:
    """What holds for an identity or a release; `since` in unix seconds, `workers` online."""

    name: str
    verdict: Admission
    by_whom: str
    since: float
    workers: int


@dataclass(frozen=True)
class Refused:
    """An identity that may take no work: its release, for people, and its workers online."""

    release: str
    withdrawn: bool
    workers: int


class Identities(StorePart):
    """The identities that may take work."""

    def declare(self, release: CodeProvenance, digests: Sequence[str] = ()) -> None:
        """Replaces what is declared, not the rulings.

        `release`: the service's (its source, else commit, else version); `digests`: of further identities.
        """
        own = next(iter(release_names(release)), "")
        by = {own: f"{OWN}, {release_text(release)}"} if own else {}
        with self._database.writing() as connection:
            declared = identities.c.verdict == DECLARED
            before = {*connection.execute(select(identities.c.name).where(declared)).scalars()}
            connection.execute(delete(identities).where(declared))
            if own not in before:  # Nodes are exchanged with the service
                forget_code(connection)
            ruled = {*connection.execute(select(identities.c.name)).scalars()}
            for name, by_whom in {**dict.fromkeys(digests, SETTING), **by}.items():
                if name not in ruled:
                    values = {"name": name, "verdict": DECLARED, "by_whom": by_whom, "since": now()}
                    upsert(connection, identities, values)

    def rule(self, digest: str, verdict: Admission, by_whom: str, by: Actor | None = None) -> Ruling:
        """Allows or withdraws an identity's digest; `by_whom`: who did it, for people."""
        action: Action = "worker.allow" if verdict == ALLOWED else "worker.withdraw"
        with self._database.writing() as connection:
            values = {"name": digest, "verdict": verdict, "by_whom": by_whom, "since": now()}
            upsert(connection, identities, values)
            (found,) = _rulings(connection, digest)
            record(connection, by, action, digest)
        return found

    def all(self) -> list[Ruling]:
        """Every ruling, by name."""
        with self._database.reading() as connection:
            return _rulings(connection)

    def admits(self, digest: str) -> bool:
        """Whether workers of an identity may take work."""
        with self._database.reading() as connection:
            return admits(connection, digest)


def forget_code(connection: Connection, fleet: str | None = None) -> None:
    """Has the code of a fleet's workers, None for all fleets, learned from workers that start from now on."""
    which = () if fleet is None else (fleets.c.name == fleet,)
    connection.execute(update(fleets).where(*which).values(identity="", release="", code_since=now()))


def alive(seconds: float = ONLINE_SECONDS) -> ColumnElement[bool]:
    """Condition: a worker had a heartbeat in the last seconds."""
    return workers.c.seen_at >= now() - seconds


def uncordoned() -> ColumnElement[bool]:
    """Condition: no administrator has taken a worker out of service."""
    return workers.c.name.not_in(select(cordons.c.name))


def serves(device: str) -> ColumnElement[bool]:
    """Condition: a worker serves a device class."""
    return workers.c.device_classes.contains(f",{device},", autoescape=True)


def standing(of: Table = workers) -> ColumnElement[str]:
    """Why a worker, or a fleet, may take no work: "withdrawn" or "unknown"; empty where it may."""
    return _standing(of.c.identity, _of_release(of.c.release))


def admitted() -> ColumnElement[bool]:
    """Condition: a worker may take work, as far as its code goes."""
    return standing() == literal("")


def admits(connection: Connection, digest: str) -> bool:
    """Whether workers of an identity may take work."""
    return not connection.execute(_standing_of(), {"digest": digest}).scalar_one()


@cache
def _standing_of() -> Select[tuple[str]]:
    return select(standing_of(bindparam("digest", type_=PlainText)))


def standing_of(digest: ColumnElement[str]) -> ColumnElement[str]:
    """`standing` of an identity; its workers' release is known by their heartbeats."""
    of_release = exists().where(workers.c.identity == digest, _of_release(workers.c.release))
    return _standing(digest, of_release)


def refused(connection: Connection) -> dict[str, Refused]:
    """Identities that may take no work, by digest: the withdrawn, and the unknown of workers online."""
    held = select(identities.c.name).where(identities.c.verdict == WITHDRAWN)
    found = {digest: Refused("", True, 0) for digest in connection.execute(held).scalars()}
    statement = select(workers.c.identity, workers.c.gauges).where(alive(), standing() != literal(""))
    for digest, gauges in connection.execute(statement.order_by(workers.c.identity)):
        code = (gauges or {}).get("code")
        before = found.get(digest, Refused("", False, 0))
        release = release_text(code) if code else "an earlier version"
        found[digest] = Refused(release, before.withdrawn, before.workers + 1)
    return found


def _standing(digest: ColumnElement[str], of_release: ColumnElement[bool]) -> ColumnElement[str]:
    mine = identities.c.name == digest
    withdrawn = exists().where(mine, identities.c.verdict == WITHDRAWN)
    named = exists().where(mine, identities.c.verdict != WITHDRAWN)
    undeclared = ~exists().where(identities.c.verdict == DECLARED)
    return case((withdrawn, WITHDRAWN), (undeclared | named | of_release, ""), else_="unknown")


def _of_release(release: ColumnElement[str]) -> ColumnElement[bool]:
    declared = release.contains(literal(",") + identities.c.name + literal(","))
    return exists().where(identities.c.verdict == DECLARED, declared)


def _rulings(connection: Connection, name: str | None = None) -> list[Ruling]:
    mine = (workers.c.identity == identities.c.name) | workers.c.release.contains(
        literal(",") + identities.c.name + literal(",")
    )
    online = select(func.count()).select_from(workers).where(alive(), mine).scalar_subquery()
    statement = select(identities, online.label("workers")).order_by(identities.c.name)
    if name is not None:
        statement = statement.where(identities.c.name == name)
    return [Ruling(**row._mapping) for row in connection.execute(statement)]
