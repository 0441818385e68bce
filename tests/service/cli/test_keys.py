"""`assay keys`, and the key that the other subcommands send."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.service.cli import commands, main
from assay.service.client import AssayClient
from assay.service.settings import Settings
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
    code, out, err = run("keys", "create", "--name", "n", "--scope", "read", "--state", str(tmp_path / "s"))
    assert code == 0
    assert f"database: sqlite:///{tmp_path}/s/assay.sqlite" in err
    with open_store(f"sqlite:///{tmp_path}/s/assay.sqlite") as store:
        assert store.keys.authenticate(out.strip()) is not None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["create", "--name", "n"], "--scope"),
        (["create", "--scope", "read"], "--name"),
        (["create", "--name", "n", "--scope", "root"], "invalid choice"),
        (["create", "--name", "", "--scope", "read"], "--name: String should have at least 1 character"),
        (["create", "--name", "n", "--scope", "read", "--tenant", "a b"], "--tenant: "),
        (["create", "--name", "n", "--scope", "read", "--expires-days", "0"], "--expires-days"),
        (["create", "--name", "n", "--scope", "read", "--expires-days", "99999"], "--expires-days: "),
        (["revoke", "00000000"], "there is no key '00000000'"),
        ([], "ACTION"),
    ],
)
def test_wrong_usage(run: Run, arguments: list[str], message: str) -> None:
    code, out, err = run("keys", *arguments)
    assert (code, out) == (2, "")
    assert message in err


def test_a_database_that_cannot_be_used(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "s").write_text("")
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
