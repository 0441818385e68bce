"""`assay fleet`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from assay.service.cli import commands, main
from assay.service.client import AssayClient
from tests.service.workers.test_fleet_routes import FLEETS, REPORT

Run = Callable[..., tuple[int, str, str]]
SLURM = ("fleet", "slurm", "--partition", "gpu", "--max", "2", "--dry-run")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, transport: Any) -> Run:
    def run(*arguments: str) -> tuple[int, str, str]:
        try:
            code = main.main(arguments)
        except SystemExit as ended:  # of argparse
            code = int(ended.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    monkeypatch.setattr(commands, "AssayClient", lambda url: AssayClient(url, transport=transport))
    return run


def test_it_lists_fleets(run: Run, api: httpx.Client) -> None:
    assert run("fleet") == (0, "no fleet: start one with `assay fleet slurm`\n", "")
    api.put(f"{FLEETS}/a100", json=REPORT)
    code, out, _ = run("fleet", "list")
    header, row = out.splitlines()[:2]
    assert code == 0
    assert header.split()[:4] == ["FLEET", "ENGINE", "DEVICE", "STATE"]
    assert row.split() == ["a100", "Slurm", "cpu", "online", "3", "2", "64", "Priority", "0", "0"]
    (found,) = json.loads(run("fleet", "--json")[1])
    assert (found["name"], found["pending"]) == ("a100", 2)


def test_a_dry_run_prints_the_script_and_calls_nobody(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    code, out, _ = run(*SLURM, "--", "--data-root", "/data")
    assert (code, out.splitlines()[0]) == (0, "#!/bin/sh")
    assert "--shard-seconds 120 --data-root /data --name" in out


def test_all_wrong_options_are_named_at_once(run: Run) -> None:
    code, out, err = run(
        "fleet", "slurm", "--partition", "g pu", "--max", "x", "--container", "enroot", "--idle", "0"
    )
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        'error: --partition: allowed: letters, digits and ._,:@/+-; given "g pu"',
        '  --max: must be an integer; given "x"',
        '  --idle: must be at least 1; given "0"',
        "  --image: with --container enroot: required",
    ]


def test_options_that_the_worker_does_not_know_are_refused(run: Run) -> None:
    code, _, err = run(*SLURM, "--", "--data-rot", "/data")
    assert (code, "unrecognized arguments: --data-rot /data; did you mean '--data-root'?" in err) == (2, True)


def test_partition_and_max_are_asked_for(run: Run) -> None:
    code, _, err = run("fleet", "slurm")
    assert (code, "--partition, --max" in err) == (2, True)
