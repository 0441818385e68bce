"""Tokens of claims: what a shard's worker may do is signed by the service, and no worker can make it up.

A token binds a pool of workers (the tenant of their keys, so that keys rotate), a worker, a shard and a
fence. It opens nothing once the shard is finished or claimed again.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import secrets
from dataclasses import replace
from typing import Any, cast

from sqlalchemy import bindparam, select

from assay.service.contract.errors import InvalidState
from assay.service.contract.states import ShardState
from assay.service.contract.stored_specs import Spec
from assay.service.store.columns import own_insert
from assay.service.store.database import Database, StorePart
from assay.service.store.rows import Claim
from assay.service.store.tables import checkpoints, jobs, shards
from assay.service.store.tenant_tables import gateway_secrets

SIGNED = ("shard_id", "job_id", "kind", "attempt", "fence", "worker", "evaluation", "number", "start", "stop")
REFUSED = "the token is of no claim of these workers"
UNFINISHED = select(shards.c.id).where(
    shards.c.id == bindparam("shard"),
    shards.c.fence == bindparam("newest"),
    shards.c.state.in_([str(ShardState.RUNNING), str(ShardState.QUEUED)]),
)


class ClaimTokens(StorePart):
    """Signs claims, and reads them back."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._secret = b""

    def signed(self, claim: Claim) -> Claim:
        """The claim with its token."""
        body = json.dumps([getattr(claim, name) for name in SIGNED], separators=(",", ":")).encode()
        text = base64.urlsafe_b64encode(body).decode()
        return replace(claim, token=f"{text}.{self._mark(text)}")

    def claim(self, token: str, pool: str) -> Claim:
        """The claim of a token, without spec and plan. Raises InvalidState: forged, or of another pool."""
        text, _, mark = token.partition(".")
        if not token.isascii() or not hmac.compare_digest(mark, self._mark(text)):
            raise InvalidState(REFUSED)
        try:
            values: list[Any] = json.loads(base64.urlsafe_b64decode(text))
        except (ValueError, binascii.Error):
            raise InvalidState(REFUSED) from None
        known = dict(zip(SIGNED, values, strict=True))
        if not known["worker"].startswith(f"{pool}:"):
            raise InvalidState(REFUSED)
        spec = cast(Spec, {})  # The store reads it in its own row
        return Claim(**known, spec=spec, plan=None, failures=0, losses=0, token=token)

    def stands(self, claim: Claim) -> bool:
        """Whether the claim is its shard's newest, and the shard unfinished."""
        with self._database.reading() as connection:
            newest = {"shard": claim.shard_id, "newest": claim.fence}
            return connection.execute(UNFINISHED, newest).first() is not None

    def spec(self, claim: Claim) -> Spec:
        """The spec of the claim's job. Raises InvalidState: the claim stands no longer."""
        if not self.stands(claim):
            raise InvalidState("the claim stands no longer")
        with self._database.reading() as connection:
            found: Spec = connection.execute(
                select(jobs.c.spec).where(jobs.c.id == claim.job_id)
            ).scalar_one()
        return found

    def upload_sha256(self, job_id: str) -> str:
        """The hash of the upload that a job checks."""
        statement = select(checkpoints.c.sha256).where(checkpoints.c.job_id == job_id)
        with self._database.reading() as connection:
            return str(connection.execute(statement).scalar_one())

    def _mark(self, text: str) -> str:
        if not self._secret:
            self._secret = self._read().encode()
        return hmac.digest(self._secret, text.encode(), "sha256").hex()

    def _read(self) -> str:
        statement = select(gateway_secrets.c.secret)
        with self._database.writing() as connection:
            drawn = {"id": 1, "secret": secrets.token_hex(32)}
            insert = own_insert(connection, gateway_secrets).values(drawn)
            connection.execute(insert.on_conflict_do_nothing())
            found: str = connection.execute(statement).scalar_one()
        return found
