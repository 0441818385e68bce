"""Registered designs of a tenant: a design is registered once, and its time never changes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, func, insert, select
from sqlalchemy.exc import IntegrityError

from assay.service.contract.errors import InvalidState, NotFound, TooManyRequests
from assay.service.store.audit import owner_of, record
from assay.service.store.clock import now
from assay.service.store.ids import decode_cursor, encode_cursor, new_id
from assay.service.store.tables import studies
from assay.service.store.tenant_tables import study_designs
from assay.service.store.tenants import TenantPart
from assay.service.studies.designs.digest import design_of, digest_of
from assay.service.studies.designs.earlier_runs import earlier_runs, has_begun
from assay.service.studies.designs.rows import AddedSeeds, DesignRow, Fixing
from assay.service.studies.designs.wire import LABELS, PATTERN, PREFIX
from assay.service.studies.wire import ArmTemplate

MAX_DESIGNS = 1000  # of a tenant


class Designs(TenantPart):
    """The designs that a caller sees. Every method is one short transaction."""

    def register(self, spec: dict[str, Any], templates: Sequence[ArmTemplate]) -> tuple[DesignRow, bool]:
        """Stores the design of a valid study; a design that is registered keeps its time.

        Raises TooManyRequests: the tenant has `MAX_DESIGNS`.
        """
        design = design_of(spec, templates)
        sha256 = digest_of(design)
        while True:
            try:
                with self._database.writing() as connection:
                    known = _own(connection, self._owner, sha256)
                    if known is not None:
                        return _design(connection, known), False
                    self._check_room(connection)
                    at = connection.execute(select(now())).scalar_one()
                    row = {"id": new_id(at), "tenant": self._owner, "sha256": sha256, "created_at": at}
                    row |= {"design": design, "labels": {name: spec[name] for name in LABELS}}
                    row["earlier"] = earlier_runs(connection, self._tenant, templates, spec["seeds"])
                    connection.execute(insert(study_designs).values(**row))
                    told = {"arms": len(templates), "seeds": len(spec["seeds"])}
                    record(connection, self._by, "design.register", sha256, detail=told)
                    stored = _own(connection, self._owner, sha256)
                    assert stored is not None
                    return _design(connection, stored), True
            except IntegrityError:  # Another request registered it at once.
                continue

    def design(self, digest: str, *, own: bool = False) -> DesignRow:
        """Reads a design, `own`: the tenant's. NotFound; InvalidState: it was changed in the store."""
        with self._database.reading() as connection:
            found = _design(connection, self._seen(connection, digest, own=own))
        if digest_of(found.design) != found.sha256:
            raise InvalidState(f"the stored design {PREFIX}{found.sha256} was changed: it has another digest")
        return found

    def designs(self, *, limit: int = 50, cursor: str | None = None) -> tuple[list[DesignRow], str | None]:
        """Lists designs, newest first, and the next page's cursor. Raises InvalidSpec: a foreign cursor."""
        statement = select(study_designs).order_by(study_designs.c.id.desc()).limit(limit + 1)
        if cursor is not None:
            statement = statement.where(study_designs.c.id < decode_cursor(cursor))
        if self._filter is not None:
            statement = statement.where(study_designs.c.tenant == self._filter)
        with self._database.reading() as connection:
            found = connection.execute(statement).all()
            rows = [_design(connection, row) for row in found[:limit]]
        return rows, encode_cursor(found[limit - 1].id) if len(found) > limit else None

    def delete_design(self, digest: str) -> None:
        """Deletes a design. Raises NotFound; InvalidState: a study was posted from it, and names it."""
        with self._database.writing() as connection:
            row = self._seen(connection, digest)
            posted = _design(connection, row).studies
            if posted:
                raise InvalidState(f"study {posted[0]} was posted from the design: delete the study first")
            connection.execute(study_designs.delete().where(study_designs.c.id == row.id))
            told = owner_of(row.tenant or None, self._by)
            record(connection, self._by, "design.delete", row.sha256, detail=told)

    def _fixing(
        self, connection: Connection, design: str, templates: Sequence[ArmTemplate], seeds: Sequence[int]
    ) -> Fixing:
        """What is stored with a study of this design that is about to be posted."""
        registered = _own(connection, self._owner, design)
        mine = (studies.c.tenant == self._owner) & (studies.c.design == design)
        before = connection.execute(select(func.count()).select_from(studies).where(mine)).scalar_one()
        if registered is None:
            earlier = earlier_runs(connection, self._tenant, templates, seeds)
        else:
            earlier = registered.earlier
        at = None if registered is None else registered.created_at
        return {"registered_at": at, "earlier": earlier, "number": before + 1, "added": []}

    def _seen(self, connection: Connection, digest: str, *, own: bool = False) -> Row[Any]:
        sha256 = digest.removeprefix(PREFIX)
        known = re.match(PATTERN, digest) is not None  # Other texts never reach the database.
        row = _own(connection, self._owner, sha256) if known else None
        if row is None and known and self._filter is None and not own:
            statement = select(study_designs).where(study_designs.c.sha256 == sha256)
            row = connection.execute(statement.order_by(study_designs.c.id).limit(1)).one_or_none()
        if row is None:
            raise NotFound(f"there is no registered design {PREFIX}{sha256[:100]}")
        return row

    def _check_room(self, connection: Connection) -> None:
        mine = study_designs.c.tenant == self._owner
        count = connection.execute(select(func.count()).select_from(study_designs).where(mine)).scalar_one()
        if count >= MAX_DESIGNS:
            raise TooManyRequests(
                f"{count} designs are registered, at most {MAX_DESIGNS} may be: delete some"
            )


def with_seeds(connection: Connection, study: Row[Any], seeds: list[int], *, by_rule: bool) -> Fixing:
    """The stored fixing of a study that gets more seeds, which it has not; `by_rule`: of its design."""
    fixing: Fixing = study.fixing
    if not seeds:
        return fixing
    at = connection.execute(select(now())).scalar_one()
    begun = has_begun(connection, study.id)
    known = begun and not by_rule
    earlier = [] if known else earlier_runs(connection, study.tenant or None, study.templates, seeds)
    added: AddedSeeds = {"seeds": seeds, "at": at, "begun": begun, "by_rule": by_rule}
    return {**fixing, "earlier": [*fixing["earlier"], *earlier], "added": [*fixing["added"], added]}


def _own(connection: Connection, tenant: str, sha256: str) -> Row[Any] | None:
    mine = (study_designs.c.tenant == tenant) & (study_designs.c.sha256 == sha256)
    return connection.execute(select(study_designs).where(mine)).one_or_none()


def _design(connection: Connection, row: Row[Any]) -> DesignRow:
    mine = (studies.c.tenant == row.tenant) & (studies.c.design == row.sha256)
    posted = connection.execute(select(studies.c.id).where(mine).order_by(studies.c.id)).scalars()
    return DesignRow(
        row.tenant, row.sha256, row.design, row.labels, row.earlier, row.created_at, list(posted)
    )
