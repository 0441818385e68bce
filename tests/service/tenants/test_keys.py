"""`assay keys`, and the key that the other subcommands send."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, inspect

from assay.service.cli import commands, main
from assay.service.client import AssayClient
from assay.service.settings import Settings
from assay.service.store.audit import AuditFilter
from assay.service.store.store import Store, open_store
from tests.support.databases import *  # noqa: F403 (fixtures)

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"require_keys": True})


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    for name in ("ASSAY_KEY", "ASSAY_URL", "ASSAY_STATE", "ASSAY_DATABASE_URL", "ASSAY_MODE"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str) -> tuple[int, str, str]:
        try:
            code = main.main(arguments)
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def database(database_url: str, monkeypatch: pytest.MonkeyPatch, run: Run) -> Iterator[Store]:
    monkeypatch.setenv("ASSAY_DATABASE_URL", database_url)
    with open_store(database_url, migrate=False) as store:
        yield store


def test_a_key_is_shown_once_and_works(run: Run, database: Store) -> None:
    code, out, err = run("keys", "create", "--name", "ci", "--scope", "submit", "--tenant", "team")
    assert code == 0
    text = out.strip()
    found = database.keys.authenticate(text)
    assert found is not None
    assert (found.name, found.scopes, found.tenant, found.expires_at) == ("ci", ["submit"], "team", None)
    assert text not in err
    listed = run("keys", "list")[1]
    assert found.id in listed
    assert text.rpartition("_")[2] not in listed
    assert run("keys", "revoke", found.id)[0] == 0
    assert "revoked" in run("keys", "list")[1]
    assert database.keys.authenticate(text) is None


def test_an_unknown_key_is_named(run: Run, database: Store) -> None:
    code, out, err = run("keys", "revoke", "00000000")
    assert (code, out) == (2, "")
    assert "there is no key '00000000'" in err


def test_everything_as_json(run: Run, database: Store) -> None:
    arguments = ("--name", "n", "--scope", "read", "--scope", "admin", "--expires-days", "2", "--json")
    made = json.loads(run("keys", "create", *arguments)[1])
    assert made["scopes"] == ["read", "admin"]
    assert made["tenant"] == made["id"]
    assert made["expires_at"].endswith("Z")
    assert database.keys.authenticate(made.pop("key")) is not None
    (listed,) = json.loads(run("keys", "list", "--json")[1])
    assert listed["last_used_at"] is not None
    assert listed | {"last_used_at": None} == made
    assert json.loads(run("keys", "revoke", made["id"], "--json")[1])["revoked_at"] is not None


def test_the_database_of_the_embedded_service(run: Run, tmp_path: Path) -> None:
    state = str(tmp_path / "s")
    open_store(f"sqlite:///{state}/assay.sqlite").close()
    code, out, err = run("keys", "create", "--name", "n", "--scope", "read", "--state", state)
    assert code == 0
    assert f"database: sqlite:///{tmp_path}/s/assay.sqlite" in err
    with open_store(f"sqlite:///{tmp_path}/s/assay.sqlite") as store:
        assert store.keys.authenticate(out.strip()) is not None
        (entry,) = store.audit.page(AuditFilter())[0]
    assert (entry.action, entry.key, entry.address) == ("key.create", None, None)
    assert entry.request is not None
    assert entry.request.startswith("assay keys by ")


MAKING = ("create", "--name", "n", "--scope", "admin")
ACTIONS = [MAKING, ("list",), ("revoke", "00000000")]


@pytest.mark.parametrize("action", ACTIONS)
def test_nowhere_in_particular_is_refused_and_makes_nothing(
    run: Run, tmp_path: Path, action: tuple[str, ...]
) -> None:
    code, out, err = run("keys", *action)
    assert (code, out) == (2, "")
    assert "ASSAY_KEY" in err
    assert "--state PATH" in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("there", ["nothing", "folder", "empty file", "another database"])
def test_a_state_without_a_database_is_refused_and_stays_as_it_is(
    run: Run, tmp_path: Path, action: tuple[str, ...], there: str
) -> None:
    state = tmp_path / "s"
    if there != "nothing":
        state.mkdir()
    if there == "empty file":
        (state / "assay.sqlite").write_bytes(b"")
    if there == "another database":
        with closing(sqlite3.connect(state / "assay.sqlite")) as connection:
            connection.execute("CREATE TABLE mine (x TEXT)")
    before = {path: path.read_bytes() if path.is_file() else b"" for path in tmp_path.rglob("*")}
    code, out, err = run("keys", *action, "--state", str(state))
    assert (code, out) == (2, "")
    assert f"assay serve --state {state}" in err
    assert ("--init" in err) == (action is MAKING)
    assert {path: path.read_bytes() if path.is_file() else b"" for path in tmp_path.rglob("*")} == before


def test_a_database_is_made_when_that_is_asked_for(run: Run, tmp_path: Path) -> None:
    state = str(tmp_path / "s")
    code, out, _ = run("keys", *MAKING, "--state", state, "--init")
    assert code == 0
    code, again, _ = run("keys", *MAKING, "--state", state, "--init")
    assert code == 0, "one that is there is used"
    with open_store(f"sqlite:///{state}/assay.sqlite") as store:
        assert store.keys.authenticate(out.strip()) is not None
        assert store.keys.authenticate(again.strip()) is not None


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch, transport: Any, app_store: Store, run: Run) -> str:
    """Calls go to the application, with an admin key in the environment."""
    monkeypatch.setattr(commands, "AssayClient", lambda url: AssayClient(url, transport=transport))
    text = app_store.keys.create("root", ["admin"], tenant="ops")[1]
    monkeypatch.setenv("ASSAY_KEY", text)
    return text


def test_an_admin_key_does_the_same_over_http(run: Run, remote: str, app_store: Store) -> None:
    arguments = ("--name", "ci", "--scope", "submit", "--tenant", "team", "--expires-days", "2")
    code, out, err = run("keys", "create", *arguments)
    assert code == 0
    assert "service: http://127.0.0.1:8000" in err
    assert "key" in err
    found = app_store.keys.authenticate(out.strip())
    assert found is not None
    assert (found.name, found.scopes, found.tenant) == ("ci", ["submit"], "team")
    code, listed, _ = run("keys", "list")
    assert code == 0
    assert found.id in listed
    assert "root" in listed
    code, revoked, _ = run("keys", "revoke", found.id)
    assert (code, revoked) == (0, f"key {found.id} (ci) is revoked; its jobs stay\n")
    made = json.loads(run("keys", "create", "--name", "j", "--scope", "read", "--json")[1])
    assert app_store.keys.authenticate(made["key"]) is not None
    assert json.loads(run("keys", "revoke", made["id"], "--json")[1])["revoked_at"] is not None
    assert [row["name"] for row in json.loads(run("keys", "list", "--json")[1])] == ["root", "ci", "j"]
    assert run("keys", "revoke", "0" * 8)[0] == 2
    entries = app_store.audit.page(AuditFilter())[0]
    assert {(entry.tenant, entry.key) for entry in entries} == {("ops", remote[6:14])}


def test_an_admin_key_may_end_itself(run: Run, remote: str) -> None:
    code, out, _ = run("keys", "revoke", remote[6:14])
    assert (code, out) == (0, f"key {remote[6:14]} (root) is revoked; its jobs stay\n")
    assert run("keys", "list")[0] == 2


def test_a_tenant_without_a_key_is_told(run: Run, remote: str) -> None:
    assert run("tenants", "set", "ops", "--weight", "2")[2].count("note:") == 0
    code, out, err = run("tenants", "set", "opps", "--weight", "3")
    assert (code, "opps" in out) == (0, True)
    assert "no key belongs to the tenant opps; did you mean ops?" in err
    code, _, err = run("tenants", "set", "ops", "--weight", "nan")
    assert code == 2
    assert "--weight: 'nan' given; allowed: a number from 0.01 to 1000" in err


def test_a_key_that_is_no_admins_is_refused(
    run: Run, remote: str, app_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_KEY", app_store.keys.create("n", ["submit"])[1])
    for action in ACTIONS:
        code, out, err = run("keys", *action)
        assert (code, out) == (2, "")
        assert "'admin'" in err
    monkeypatch.delenv("ASSAY_KEY")
    code, _, err = run("keys", "list", "--url", "http://127.0.0.1:8000")
    assert code == 2
    assert "set ASSAY_KEY" in err


def test_state_goes_before_a_key(run: Run, remote: str, tmp_path: Path) -> None:
    code, _, err = run("keys", "list", "--state", str(tmp_path / "s"))
    assert code == 2
    assert "there is no database" in err
    code, _, err = run("keys", *MAKING, "--init")
    assert code == 2
    assert "--init: goes with --state" in err


def test_a_database_without_tables_is_not_given_any(
    run: Run, empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_DATABASE_URL", empty_database_url)
    code, _, err = run("keys", *MAKING)
    assert code == 2
    assert "there is no database of Assay" in err
    if empty_database_url.startswith("sqlite"):
        assert not Path(empty_database_url.removeprefix("sqlite:///")).exists()
        return
    engine = create_engine(empty_database_url)
    assert inspect(engine).get_table_names() == []
    engine.dispose()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["create", "--name", "n"], "--scope"),
        (["create", "--scope", "read"], "--name"),
        (["create", "--name", "n", "--scope", "root"], "invalid choice"),
        (["create", "--name", "", "--scope", "read"], "--name: must not be empty"),
        (["create", "--name", "n", "--scope", "read", "--tenant", "a b"], "--tenant: "),
        (["create", "--name", "n", "--scope", "read", "--expires-days", "0"], "--expires-days"),
        (["create", "--name", "n", "--scope", "read", "--expires-days", "99999"], "--expires-days: "),
        (["list"], "which service?"),
    ],
)
def test_wrong_usage(run: Run, arguments: list[str], message: str) -> None:
    code, out, err = run("keys", *arguments)
    assert (code, out) == (2, "")
    assert message in err


def test_a_database_that_cannot_be_used(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "assay.sqlite").write_text("no database, but a text, and a long one at that" * 100)
    code, _, err = run("keys", "list", "--state", str(tmp_path / "s"))
    assert code == 2
    assert "the database cannot be used" in err
    monkeypatch.setenv("ASSAY_DATABASE_URL", "mysql://me:geheim@h/d")
    code, _, err = run("keys", "list")
    assert code == 2
    assert "ASSAY_DATABASE_URL" in err
    assert "geheim" not in err


def test_the_key_goes_with_every_call_and_a_refusal_says_what_to_set(
    run: Run, transport: Any, app_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "AssayClient", lambda url: AssayClient(url, transport=transport))
    code, _, err = run("jobs")
    assert code == 2
    assert "export ASSAY_KEY=assay_..." in err
    text = app_store.keys.create("n", ["read"])[1]
    monkeypatch.setenv("ASSAY_KEY", f"{text}\n")
    assert run("jobs")[0] == 0
    app_store.keys.revoke(app_store.keys.list()[0].id)
    code, _, err = run("jobs")
    assert code == 2
    assert "the key in ASSAY_KEY does not work here" in err
    assert text not in err
    for odd in ("a b", "é", "a\nb"):
        monkeypatch.setenv("ASSAY_KEY", odd)
        code, _, err = run("jobs")
        assert code == 2
        assert "no key has" in err
