"""Audit entries, and the chain of hashes that shows a changed or missing entry.

Each entry has the SHA-256 of its own fields and of the entry before it. So a changed, missing or additional
entry breaks the chain. Retention removes the oldest entries and leaves the entry `audit.expire`, which names
the last entry removed and its hash: the chain then begins there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from assay.service.contract.results import Answer
from assay.service.contract.verbs import JobAction

Action = Literal[  # `access`: a call that the key may not make; `key.use`: a key that does not work.
    "job.submit", JobAction, "job.tag",
    "study.submit", "study.extend", "study.cancel", "study.retry", "study.delete",
    "design.register", "design.delete",
    "checkpoint.upload", "checkpoint.delete",
    "key.create", "key.revoke", "key.use", "access",
    "session.open", "session.close",
    "tenant.change",
    "worker.cordon", "worker.uncordon", "worker.drain", "worker.allow", "worker.withdraw",
    "webhook.create", "webhook.delete", "webhook.rotate", "webhook.enable", "webhook.test",
    "webhook.redeliver",
    "audit.expire",
]  # fmt: skip
ACTIONS: tuple[Action, ...] = get_args(Action)
# `limited` is the refusal after which an address or a key is counted, and no longer written down.
Outcome = Literal["ok", "refused", "limited"]
FIRST = "0" * 64  # the previous hash of entry 1
JSON_LINES = "application/x-ndjson"  # media type of an export: an entry a line


class AuditEntry(Answer):
    """Who did or tried what. Entries without a key are of a service without keys, or of `assay keys --state`.

    `at` is ISO 8601 in UTC. `object` is the id or name acted upon, or a refused call's path. `session` is a
    mark of the browser session, not its token, `request` the id in the answer's header `X-Request-ID`.
    """

    id: int
    at: str
    tenant: str | None
    key: str | None
    session: str | None
    address: str | None
    request: str | None
    action: Action
    object: str | None
    outcome: Outcome
    detail: dict[str, Any]
    previous: str
    sha256: str


def chained(entry: dict[str, Any]) -> str:
    """The hash of an entry: of all its fields but `sha256`, as JSON with sorted keys in ASCII."""
    fields = {name: value for name, value in entry.items() if name != "sha256"}
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


@dataclass
class Chain:
    """What a look at all entries, oldest first, has found."""

    count: int = 0
    last: AuditEntry | None = None  # the newest entry
    breaks: list[str] = field(default_factory=list)  # a sentence for each place where the chain is broken
    _first: AuditEntry | None = None
    _expired: tuple[int, str] = (0, FIRST)

    def add(self, entry: AuditEntry) -> None:
        """Checks an entry against the entry before it."""
        if chained(entry.model_dump(mode="json")) != entry.sha256:
            self.breaks.append(f"entry {entry.id} was changed: its fields do not have its hash")
        if self.last is None:
            self._first = entry
        elif entry.id != self.last.id + 1:
            self.breaks.append(f"entries are missing between {self.last.id} and {entry.id}")
        elif entry.previous != self.last.sha256:
            self.breaks.append(f"entry {entry.id} does not follow the entry {self.last.id} that is there")
        if entry.action == "audit.expire":
            self._expired = (int(entry.detail["until"]), str(entry.detail["sha256"]))
        self.last = entry
        self.count += 1

    def end(self) -> list[str]:
        """Checks the beginning, which only retention may have moved; returns all breaks."""
        if self._first is not None and (self._first.id - 1, self._first.previous) != self._expired:
            self.breaks.insert(
                0, f"entries before {self._first.id} are missing, and retention did not remove them"
            )
        return self.breaks


def chain_of(entries: Iterable[AuditEntry]) -> Chain:
    """The finished check of all entries, oldest first."""
    chain = Chain()
    for entry in entries:
        chain.add(entry)
    chain.end()
    return chain
