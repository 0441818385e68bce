"""Checks of what boxes share: clock, versions, port, database, Redis."""

from __future__ import annotations

import contextlib
import errno
import importlib.metadata
import os
import platform
import re
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError
from sqlalchemy import make_url, select
from sqlalchemy.exc import ArgumentError, DBAPIError

from assay.service.catalog.catalog import load
from assay.service.contract.findings.data_disagreements import on_workers
from assay.service.store.clock import now
from assay.service.store.database import Database
from assay.service.store.fleet.workers import Workers
from assay.service.store.live import redis_answers
from assay.service.store.upgrade import configuration
from assay.workers.diagnosis.finding import Finding, fail, ok, warn
from assay.workers.diagnosis.machine import INSTALL, existing
from assay.workers.settings import WorkerSettings

PACKAGES = ("torch", "torchvision", "timm", "numpy", "scipy", "scikit-learn", "safetensors", "pillow")
WARN_SECONDS, FAIL_SECONDS = 2.0, 60.0
ASK_SECONDS = 3.0
CLOCK_REMEDY = "let a time service (chrony, systemd-timesyncd) set the clock of both machines"


def database(settings: WorkerSettings) -> tuple[Finding, float | None]:
    """Whether the database answers with this version's tables; and our clock's lead on its."""
    try:
        file = sqlite_file(settings.database)
        if file is not None and not file.exists():
            return ok("database", f"none yet: `assay serve` makes {file}"), None
        opened = Database(settings.database)
    except ArgumentError:
        remedy = "correct ASSAY_DATABASE_URL; allowed: postgresql+psycopg://user@host/database, or empty"
        return fail("database", "ASSAY_DATABASE_URL is no URL of a database", remedy), None
    except ValueError as error:
        return fail("database", str(error), "correct ASSAY_DATABASE_URL"), None
    kind = "PostgreSQL" if opened.file is None else str(opened.file)
    try:
        with opened.reading() as connection:
            begun = time.time()
            theirs = float(connection.execute(select(now())).scalar_one())
            ahead = (begun + time.time()) / 2 - theirs
            revision = MigrationContext.configure(connection).get_current_revision()
            scripts = ScriptDirectory.from_config(configuration(connection))
            head = scripts.get_current_head()
            with contextlib.suppress(CommandError):
                known = revision is None or scripts.get_revision(revision) is not None
                return _revision(kind, revision, head, known=known), ahead
            return _revision(kind, revision, head, known=False), ahead
    except DBAPIError as error:
        return _unreachable(" ".join(str(error.orig).split())[:300]), None
    finally:
        opened.close()


def agreement(settings: WorkerSettings) -> Finding | None:
    """Whether online workers have equal data sets; None for another version's tables."""
    try:
        with contextlib.closing(Database(settings.database)) as opened:
            found = Workers(opened).disagreements()
    except DBAPIError:
        return None
    if not found:
        return ok("data of the workers", "no two workers online have other contents of a set")
    said = "; ".join(f"{label}: {on_workers(by_hash)}" for label, by_hash in found.items())
    remedy = "unpack the set again where it is wrong, or take its worker out: assay workers cordon NAME"
    return warn("data of the workers", f"several contents of {said}", remedy)


def _unreachable(said: str) -> Finding:
    if re.search(r'database "[^"]*" does not exist', said):
        return fail("database", f"the server refuses: {said}", "create it, or correct ASSAY_DATABASE_URL")
    if re.search(r'role "[^"]*" does not exist|authentication failed', said):
        remedy = "correct the user in ASSAY_DATABASE_URL, and ASSAY_DATABASE_PASSWORD"
        return fail("database", f"the server refuses: {said}", remedy)
    if re.search("resolve|[Nn]ame or service not known|No address associated", said):
        return fail("database", f"its host has no address: {said}", "correct the host in ASSAY_DATABASE_URL")
    remedy = "start it, and let this box reach it; ASSAY_DATABASE_URL names it"
    return fail("database", f"it does not answer: {said}", remedy)


def sqlite_file(url: str) -> Path | None:
    """A SQLite database's file, else None. A `Database` would make its folder."""
    parsed = make_url(url)
    return Path(parsed.database or "") if parsed.get_backend_name() == "sqlite" else None


def _revision(kind: str, revision: str | None, head: str | None, *, known: bool) -> Finding:
    facts = {"revision": revision, "head": head}
    if revision == head:
        return ok("database", f"{kind} answers, revision {revision}", **facts)
    if known:
        remedy = "start `assay serve`, or run `python -P -m assay.service.migrate` once"
        has = "no tables yet" if revision is None else f"revision {revision}; this version has {head}"
        return warn("database", f"{kind} has {has}", remedy, **facts)
    remedy = "upgrade this box to the version of the service"
    return fail(
        "database", f"{kind} has revision {revision}, which this version does not know", remedy, **facts
    )


def clock(settings: WorkerSettings, ahead: float | None) -> Finding:
    """Our clock against the database's, else the state folder's file system's."""
    against = "the database's"
    if ahead is None:
        folder = existing(settings.state)
        against = f"the clock of the file system of {folder}"
        try:
            with tempfile.NamedTemporaryFile(dir=folder) as file:
                ahead = time.time() - Path(file.name).stat().st_mtime
        except OSError as error:  # it may be a file
            text = f"no other clock was found: {folder} cannot be written to: {error.strerror}"
            return warn("clock", text, "make the state folder writable for this user")
    text, facts = f"{ahead:+.2f} s against {against}", {"ahead_seconds": round(ahead, 3)}
    if abs(ahead) > FAIL_SECONDS:
        return fail("clock", text, CLOCK_REMEDY, **facts)
    if abs(ahead) > WARN_SECONDS:
        return warn("clock", text, CLOCK_REMEDY, **facts)
    return ok("clock", text, **facts)


def versions(source_sha256: str | None) -> Finding:
    """Python, Assay, packages, source and catalog: equal on all boxes of a service."""
    found: dict[str, Any] = {"python": platform.python_version(), "assay": _version("assay-robustness")}
    packages = {name: _version(name) for name in PACKAGES}
    found |= {"packages": packages, "source_sha256": source_sha256, "catalog": load().digest}
    missing = [name for name, version in packages.items() if version is None]
    parts = [f"python {found['python']}", f"assay {found['assay'] or 'not installed'}"]
    parts += [f"{name} {version}" for name, version in packages.items() if version is not None]
    parts += [
        f"source {source_sha256[:12] if source_sha256 else 'not known'}",
        f"catalog {load().digest[:12]}",
    ]
    if missing:
        return warn("versions", f"{', '.join(parts)}; missing: {', '.join(missing)}", INSTALL, **found)
    return ok("versions", ", ".join(parts), **found)


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def port() -> Finding:
    """Whether the service's port is free, or has our service."""
    host, text = os.environ.get("ASSAY_HOST") or "127.0.0.1", os.environ.get("ASSAY_PORT") or "8000"
    if not text.isdecimal() or int(text) > 65535:
        given = "--port or ASSAY_PORT"
        return fail("port", f"{given} is {text[:50]!r}", "allowed: a number from 0 to 65535")
    number, place = int(text), f"{host}, port {text}"
    try:
        address = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)[0]
        with socket.socket(address[0], socket.SOCK_STREAM) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(address[4])
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            remedy = "correct --host and --port, or ASSAY_HOST and ASSAY_PORT"
            return fail("port", f"{place} cannot be listened on: {error.strerror or error}", remedy)
        if _is_ours(host, number):
            return ok("port", f"{place}: an Assay service answers", host=host, port=number, free=False)
        remedy = "stop that program, or choose another port with --port or ASSAY_PORT"
        return fail("port", f"{place} is used by another program", remedy, host=host, port=number)
    return ok("port", f"{place} is free", host=host, port=number, free=True)


def _is_ours(host: str, number: int) -> bool:
    reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 (compared, not listened on)
    shown = f"[{reached}]" if ":" in reached else reached
    try:
        answer = httpx.get(f"http://{shown}:{number}/healthz", timeout=ASK_SECONDS, trust_env=False)
        return bool(answer.json() == {"status": "ok"})
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return False


def redis(settings: WorkerSettings) -> Finding:
    """Whether Redis answers, where it is used."""
    if not settings.redis:
        return ok("Redis", "not used in the embedded mode", used=False)
    if redis_answers(settings.redis):
        return ok("Redis", "it answers", used=True)
    remedy = "start it, and let this box reach it; ASSAY_REDIS_URL names it. Until then workers poll"
    return fail("Redis", "it does not answer", remedy, used=True)
