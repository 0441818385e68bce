"""`assay fleet`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from assay.service.cli import commands, main
from assay.service.client import AssayClient
from assay.service.contract.errors import Unauthorized
from tests.service.workers.test_fleet_routes import FLEETS, REPORT
from tests.support.fake_slurm import FakeSlurm

Run = Callable[..., tuple[int, str, str]]
SLURM = ("fleet", "slurm", "--partition", "gpu", "--max", "2", "--dry-run")
SERVICE = ("--gateway", "https://assay.example")


def refusing(client: AssayClient, key: str) -> None:
    """As a service does that asks for keys."""
    raise Unauthorized("no key")


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
    assert row.split() == ["a100", "Slurm", "cpu", "online", "3", "2", "64", "Priority", "0", "0", "0"]
    (found,) = json.loads(run("fleet", "--json")[1])
    assert (found["name"], found["pending"]) == ("a100", 2)


def test_a_dry_run_prints_the_script_and_has_slurm_check_it(
    run: Run, fake_slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run(*SLURM, "--", *SERVICE, "--data-root", "/data")
    assert (code, out.splitlines()[0]) == (0, "#!/bin/sh")
    assert "--shard-seconds 120 --gateway https://assay.example --data-root /data --state" in out
    assert (err, fake_slurm.rows()) == (f"sbatch: Job 1 to start, script of {len(out)}\n", [])
    code, _, err = run(*SLURM, "--partition", "gpus", "--", *SERVICE)
    assert (code, 'unknown to Slurm; given "gpus"' in err) == (2, True)
    monkeypatch.setenv("PATH", "/nowhere")
    code, out, err = run(*SLURM, "--", *SERVICE)
    assert (code != 0, "#!/bin/sh" in out, "not checked by Slurm" in err) == (True, True, True)


def test_workers_without_a_service_are_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASSAY_STATE", raising=False)
    code, out, err = run(*SLURM, "--", "--data-root", "/data")
    assert (code, out) == (2, "")
    assert "the options after --: name no service" in err
    assert "--gateway URL, or --state DIR" in err


@pytest.mark.parametrize(
    ("key", "said"),
    [("", "ASSAY_WORKER_KEY: is not set"), ("assay_x", "ASSAY_WORKER_KEY: the gateway refuses it")],
)
def test_workers_without_a_key_that_works_are_refused_at_once(
    run: Run, fake_slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch, key: str, said: str
) -> None:
    monkeypatch.setattr(AssayClient, "try_gateway", refusing)
    monkeypatch.setenv("ASSAY_WORKER_KEY", key)
    code, _, err = run(*SLURM[:-1], "--", *SERVICE, "--state", "/scratch")
    assert (code, said in err, "assay keys create --scope worker" in err) == (2, True, True)
    assert fake_slurm.rows() == []


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
        "  the options after --: name no service; allowed: --gateway URL, or --state DIR that all nodes"
        " mount",
    ]


def test_options_that_the_worker_does_not_know_are_refused(run: Run) -> None:
    code, _, err = run(*SLURM, "--", *SERVICE, "--data-rot", "/data")
    assert (code, "unrecognized arguments: --data-rot /data; did you mean '--data-root'?" in err) == (2, True)


def test_partition_and_max_are_asked_for(run: Run) -> None:
    code, _, err = run("fleet", "slurm")
    assert (code, "--partition, --max" in err) == (2, True)
