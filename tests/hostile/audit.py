"""Attempts on keys and the audit: guess a key, read or change what is written, make a key from nowhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError

from assay.service.client import AssayClient
from assay.service.contract.audit import chain_of
from tests.hostile.attempt import Attempt, Target

API = "/api/v1"
CHANGES = (
    "UPDATE audit SET tenant = 'somebody' WHERE id = (SELECT max(id) FROM audit)",
    "DELETE FROM audit WHERE id = (SELECT max(id) FROM audit)",
    "DELETE FROM audit",
)


def http(target: Target, key: str = "", **headers: str) -> httpx.Client:
    """A client of the target, with a key if there is one."""
    sent = headers | ({"Authorization": f"Bearer {key}"} if key else {})
    return httpx.Client(base_url=target.url, headers=sent, timeout=30, trust_env=False)


def thirty_one_logins(target: Target) -> str:
    """Wrong keys at the login, and a right one after them."""
    wrong = {"key": "assay_" + "0" * 8 + "_" + "0" * 32}
    with http(target) as client:
        answers = [client.post(f"{API}/session", json=wrong) for _ in range(31)]
        codes = [answer.status_code for answer in answers]
        assert codes == [401] * 30 + [429], codes
        assert client.post(f"{API}/session", json={"key": target.bob}).status_code == 201
    return f"429 at the 31st, Retry-After {answers[-1].headers['retry-after']}; a right key still logs in"


def forged_address(target: Target) -> str:
    """Another X-Forwarded-For in each request, to be counted as many addresses."""
    codes = []
    for number in range(31):
        with http(target, "assay_x", **{"X-Forwarded-For": f"198.51.100.{number}"}) as client:
            codes.append(client.get(f"{API}/jobs").status_code)
    assert codes[-1] == 429, codes
    with AssayClient(target.url, target.admin) as client:
        addresses = {entry.address for entry in client.audit()}
    assert not any((address or "").startswith("198.51.100.") for address in addresses), addresses
    return "429 all the same: the header of an untrusted peer is not read"


def reading(target: Target) -> str:
    """The audit with a key that is no administrator's, and with none."""
    codes = []
    for key in (target.alice, target.bob, ""):
        for accept in ("application/json", "application/x-ndjson"):
            with http(target, key, Accept=accept) as client:
                codes.append(client.get(f"{API}/audit").status_code)
    assert codes == [403] * 4 + [401] * 2, codes
    with AssayClient(target.url, target.admin) as client:
        refused = [entry for entry in client.audit(action="access") if entry.object == f"{API}/audit"]
    assert len(refused) == 4, refused
    return "403 with a submit key, which is written down; 401 without a key"


def changing(target: Target) -> str:
    """UPDATE and DELETE on the application's own connection."""
    engine = create_engine(database_of(target))
    refused = 0
    try:
        for change in CHANGES:
            try:
                with engine.begin() as connection:
                    changed = connection.execute(text(change)).rowcount
                raise AssertionError(f"{change} changed {changed} rows")
            except DBAPIError as error:
                refused += "append-only" in str(error)
    finally:
        engine.dispose()
    assert refused == len(CHANGES), "something else than a trigger was in the way"
    return f"a trigger refused {refused} of {len(CHANGES)} statements"


def secrets(target: Target) -> str:
    """Looks for the text of a key in the export, after making, using and mistyping it."""
    with AssayClient(target.url, target.admin) as client:
        made = client.create_key("hostile", ["read"], tenant="alice")
        secret = made.key.rpartition("_")[2]
        mistyped = made.key[:-1] + ("0" if made.key[-1] != "0" else "1")
        with http(target) as other:
            cookie = other.post(f"{API}/session", json={"key": made.key}).cookies["assay_session"]
            other.post(f"{API}/session", json={"key": mistyped})
        with http(target, mistyped) as other:
            other.get(f"{API}/jobs")
        client.revoke_key(made.id)
        entries = list(client.audit())
    export = json.dumps([entry.model_dump(mode="json") for entry in entries])
    for word in (secret, mistyped.rpartition("_")[2], cookie, target.admin.rpartition("_")[2]):
        assert word not in export
    breaks = chain_of(entries).breaks
    assert not breaks, breaks
    return f"{len(entries)} entries hold neither secret nor cookie, and their chain is unbroken"


def from_nowhere(target: Target) -> str:
    """`assay keys create` in an empty folder, which once made a database there."""
    environment: dict[str, Any] = {k: v for k, v in os.environ.items() if not k.startswith("ASSAY_")}
    command = [sys.executable, "-P", "-m", "assay.service.cli.main", "keys", "create"]
    command += ["--name", "x", "--scope", "admin"]
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
        assert run.returncode == 2, run
        assert run.stdout == ""
        assert "--state PATH" in run.stderr
        assert not list(Path(folder).iterdir())
    return "exit code 2, and the folder stays empty"


def keys_with_a_submit_key(target: Target) -> str:
    """A key for administrators, made or revoked with a submit key."""
    with http(target, target.alice) as client:
        made = client.post(f"{API}/keys", json={"name": "x", "scopes": ["admin"]})
        ended = client.delete(f"{API}/keys/{target.bob[6:14]}")
    assert (made.status_code, ended.status_code) == (403, 403), (made.text, ended.text)
    with http(target, target.bob) as client:
        assert client.get(f"{API}/jobs").status_code == 200
    return "403 and 403; the other key still works"


def database_of(target: Target) -> str:
    """The URL that the serving process has, as whoever took it over could read it."""
    environ = Path(f"/proc/{target.pid}/environ").read_bytes().split(b"\0")
    found = dict(item.decode().partition("=")[::2] for item in environ if item)
    return found.get("ASSAY_DATABASE_URL") or f"sqlite:///{target.state / 'assay.sqlite'}"


ATTEMPTS = (
    Attempt("31 logins with a wrong key within a minute", thirty_one_logins),
    Attempt("31 wrong keys, each from another X-Forwarded-For", forged_address),
    Attempt("read the audit with a submit key, and without", reading),
    Attempt("change and delete audit rows by SQL as the application", changing),
    Attempt("find the secret of a key in the audit", secrets),
    Attempt("make and revoke keys with a submit key", keys_with_a_submit_key),
    Attempt("`assay keys create` in an empty folder", from_nowhere),
)
