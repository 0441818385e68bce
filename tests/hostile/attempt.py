"""One attempt to hurt the service or its other tenants, and what it is aimed at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Target:
    """A running service that asks for keys.

    Attributes:
        url: of the service, without a path.
        mode: "embedded" or "distributed".
        admin: API key with the scope admin, of the tenant "ops".
        alice: API key with the scope submit, of the tenant "alice".
        bob: the same, of the tenant "bob".
        state: its state folder.
        pid: its serving process.
        database: its URL.
        data: its data root.
    """

    url: str
    mode: str
    admin: str
    alice: str
    bob: str
    state: Path
    pid: int
    database: str
    data: Path


@dataclass(frozen=True)
class Attempt:
    """Something that must be refused.

    Attributes:
        title: what is tried, such as "a body of 40 MB".
        run: returns how it was refused, in a few words; raises AssertionError where it was not.
    """

    title: str
    run: Callable[[Target], str]
