"""`assay audit`: the table, the export, and whether the chain holds."""

from __future__ import annotations

import argparse
import json
import stat
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from assay.service.audit.cli import head, moment
from assay.service.cli import commands, main
from assay.service.client import AssayClient
from assay.service.contract.audit import AuditEntry, chain_of
from assay.service.settings import Settings
from assay.service.store.audit import Actor
from assay.service.store.store import Store

Run = Callable[..., tuple[int, str, str]]
BY = Actor(tenant="team", key="k" * 8, address="192.0.2.1")


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"require_keys": True})


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    transport: Any,
    app_store: Store,
) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ASSAY_URL", raising=False)
    monkeypatch.setenv("ASSAY_KEY", app_store.keys.create("root", ["admin"], tenant="ops")[1])
    monkeypatch.setattr(commands, "AssayClient", lambda url: AssayClient(url, transport=transport))

    def run(*arguments: str) -> tuple[int, str, str]:
        try:
            code = main.main(("audit", *arguments))
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    for number in range(5):
        app_store.audit.add(BY, "access", f"/{number}\x1b[31m", outcome="refused", detail={"n": number})
    return run


def test_the_newest_as_a_table(run: Run) -> None:
    code, out, _ = run("--limit", "3")
    assert code == 0
    lines = out.splitlines()
    assert lines[0].split() == ["ID", "TIME", "TENANT", "KEY", "ADDRESS", "ACTION", "OBJECT", "OUTCOME"]
    assert [line.split()[0] for line in lines[1:]] == ["3", "4", "5"]
    assert "192.0.2.1" in lines[1]
    assert "\x1b" not in out
    assert run("--tenant", "ops")[1] == "no entries\n"
    assert [item["id"] for item in json.loads(run("--json", "--since", "1h")[1])] == [1, 2, 3, 4, 5]
    assert run("--until", "2h")[1] == "no entries\n"


def test_more_than_a_page(run: Run, app_store: Store) -> None:
    for number in range(210):
        app_store.audit.add(BY, "access", f"/{number}", outcome="refused", detail={})
    assert [item["id"] for item in json.loads(run("--json", "--limit", "205")[1])] == list(range(11, 216))


def test_an_export_is_whole_private_and_verifies_elsewhere(run: Run, tmp_path: Path) -> None:
    code, out, err = run("--jsonl", "audit.jsonl")
    assert (code, out, err) == (0, "", "5 entries\n")
    file = tmp_path / "audit.jsonl"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    entries = [AuditEntry.model_validate_json(line) for line in file.read_text().splitlines()]
    assert chain_of(entries).breaks == []
    assert [path.name for path in tmp_path.iterdir() if "jsonl" in path.name] == ["audit.jsonl"]
    code, out, _ = run("--jsonl", "-")
    assert [json.loads(line)["id"] for line in out.splitlines()] == [1, 2, 3, 4, 5]


def test_a_broken_export_leaves_no_file(run: Run, tmp_path: Path, app_store: Store) -> None:
    app_store.keys.revoke(app_store.keys.list()[0].id)
    assert run("--jsonl", "audit.jsonl")[0] == 2
    assert not list(tmp_path.glob("*jsonl*"))


@pytest.mark.costly
def test_verify_says_unbroken_and_its_head(run: Run, app_store: Store) -> None:
    code, out, err = run("--verify")
    assert (code, err) == (0, "")
    assert out.startswith("5 entries, unbroken; the newest is 5:")
    noted = out.split()[-1]
    app_store.audit.add(BY, "access", "/6", outcome="refused", detail={})
    assert run("--verify", "--head", noted)[0] == 0
    assert run("--verify", "--jsonl", "a.jsonl")[0] == 0
    assert Path("a.jsonl").read_text().count("\n") == 6


def test_verify_shows_what_was_changed_and_what_was_cut_off(run: Run, app_store: Store) -> None:
    noted = run("--verify")[1].split()[-1]
    with app_store._database.writing() as connection:
        for what in ("update", "delete"):
            connection.execute(text(f"DROP TRIGGER audit_no_{what}"))
        connection.execute(text("DELETE FROM audit WHERE id = 5"))
    code, out, err = run("--verify", "--head", noted)
    assert code == 1
    assert "4 entries, broken" in out
    assert err == "entry 5 does not have the hash given by --head, or is gone\n"
    with app_store._database.writing() as connection:
        connection.execute(text("UPDATE audit SET tenant = 'x' WHERE id = 2"))
    code, out, err = run("--verify")
    assert code == 1
    assert err == "entry 2 was changed: its fields do not have its hash\n"


@pytest.mark.costly
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--verify", "--tenant", "a"], "leave the filters out"),
        (["--head", f"1:{'0' * 64}"], "goes with --verify"),
        (["--since", "yesterday"], "7d, 12h or 30m ago"),
        (["--action", "job.submitt"], "invalid choice"),
        (["--verify", "--head", "x"], "ID:SHA256"),
        (["--limit", "0"], "--limit"),
        (["--key", "x"], "--key"),
    ],
)
def test_wrong_usage(run: Run, arguments: list[str], message: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert message in err


def test_moments() -> None:
    made = moment("7d")
    ago = datetime.now(UTC) - datetime.fromisoformat(made)
    assert timedelta(days=7) <= ago < timedelta(days=7, minutes=1)
    assert moment("2026-01-31") == "2026-01-31T00:00:00.000Z"
    assert moment("2026-01-31T12:00:00+02:00") == "2026-01-31T10:00:00.000Z"
    assert head(f"12:{'a' * 64}") == (12, "a" * 64)
    for wrong in ("", "0d", "7w", "2026-13-01"):
        with pytest.raises(argparse.ArgumentTypeError):
            moment(wrong)
