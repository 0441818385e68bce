"""`assay fleet`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from sqlalchemy import update

from assay.service.cli import commands, main
from assay.service.client import AssayClient
from assay.service.contract.errors import AssayError, Forbidden, Unauthorized
from assay.service.store.store import Store
from assay.service.store.tables import fleets
from tests.service.workers.test_fleet_routes import FLEETS, REPORT
from tests.support.fake_slurm import FakeSlurm
from tests.support.pages import PAGE

Run = Callable[..., tuple[int, str, str]]
SLURM = ("fleet", "slurm", "--partition", "gpu", "--max", "2", "--dry-run")
SERVICE = ("--gateway", "https://assay.example")


def unreachable(request: httpx.Request) -> httpx.Response:
    """An address without a service."""
    raise httpx.ConnectError("refused", request=request)


SILENT = httpx.MockTransport(unreachable)


def refusing(error: AssayError) -> Callable[..., Any]:
    """As a service does that asks for keys."""

    def refuse(*given: object) -> None:
        raise error

    return refuse


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, transport: Any) -> Run:
    """The command; the service in this process asks for no keys, and takes all at its gateway."""

    def run(*arguments: str) -> tuple[int, str, str]:
        try:
            code = main.main(arguments)
        except SystemExit as ended:  # of argparse
            code = int(ended.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    try_gateway = AssayClient.try_gateway

    def connected(url: str, key: str | None = None) -> AssayClient:
        return AssayClient(url, key, transport=SILENT if "silent" in url else transport)

    def tried(client: AssayClient, key: str) -> None:
        if "silent" in client.url:
            try_gateway(client, key)

    monkeypatch.setattr(AssayClient, "try_gateway", tried)
    monkeypatch.setattr(commands, "AssayClient", connected)
    monkeypatch.setattr("assay.service.client.AssayClient", connected)
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


def test_what_slurm_has_of_a_fleet_without_a_controller_is_unknown(
    run: Run, api: httpx.Client, app_store: Store
) -> None:
    api.put(f"{FLEETS}/a100", json={**REPORT, "phase": "ends"})
    row = run("fleet")[1].splitlines()[1].split()
    assert (row[3], row[5:]) == ("ended", ["?", "?", "64", "0", "0", "0"])
    assert '<td data-label="Controller"><strong>ended</strong></td>' in api.get("/workers", headers=PAGE).text
    api.put(f"{FLEETS}/a100", json=REPORT)
    with app_store.workers._database.writing() as connection:
        connection.execute(update(fleets).values(seen_at=fleets.c.seen_at - 200))
    row = run("fleet")[1].splitlines()[1].split()
    assert (row[3:5], row[6:]) == (["away", "since"], ["?", "?", "64", "0", "0", "0"])
    text = api.get("/workers", headers=PAGE).text
    assert '<td data-label="Controller"><strong>away</strong></td>' in text
    assert 'data-label="Running">?</td>' in text


def test_a_dry_run_prints_the_script_and_has_slurm_check_it(
    run: Run, fake_slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run(*SLURM, "--", *SERVICE, "--data-root", "/data")
    assert (code, out.splitlines()[0]) == (0, "#!/bin/sh")
    assert "--shard-seconds 120 --gateway https://assay.example --data-root /data --state" in out
    assert (err, fake_slurm.rows()) == (f"sbatch: Job 1 to start, script of {len(out)}\n", [])
    code, _, err = run(*SLURM, "--partition", "gpus", "--", *SERVICE)
    assert (code, "unknown to Slurm; did you mean" in err and 'given "gpus"' in err) == (2, True)
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
    monkeypatch.setattr(AssayClient, "try_gateway", refusing(Unauthorized("no key")))
    monkeypatch.setenv("ASSAY_WORKER_KEY", key)
    for words in (SLURM, SLURM[:-1]):
        code, _, err = run(*words, "--", *SERVICE, "--state", "/scratch")
        assert (code, said in err, "assay keys create --scope worker" in err) == (2, True, True)
    assert fake_slurm.rows() == []


@pytest.mark.parametrize(
    ("key", "error", "said"),
    [
        ("", Unauthorized("no key"), "ASSAY_KEY: is not set"),
        ("assay_x", Unauthorized("no key"), "ASSAY_KEY: the service refuses it"),
        ("assay_x", Forbidden("no admin"), "ASSAY_KEY: has not the scope admin"),
    ],
)
def test_a_controller_without_a_key_that_works_ends(
    run: Run, fake_slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch, key: str, error: AssayError, said: str
) -> None:
    hint = "assay keys create --state DIR --name fleet --scope admin"
    monkeypatch.setenv("ASSAY_KEY", key)
    monkeypatch.setattr(AssayClient, "report_fleet", refusing(error))  # of late, as after a restart
    code, _, err = run(*SLURM[:-1], "--", *SERVICE)
    assert (code, said in err, hint in err) == (2, True, True)
    monkeypatch.setattr(AssayClient, "fleets", refusing(error))
    for words in (SLURM, SLURM[:-1]):
        code, _, err = run(*words, "--", *SERVICE)
        assert (code, said in err, hint in err) == (2, True, True)


def test_a_dry_run_names_all_faults_at_once(
    run: Run, fake_slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AssayClient, "try_gateway", refusing(Unauthorized("no key")))
    monkeypatch.setenv("ASSAY_URL", "http://silent.example")
    code, _, err = run(*SLURM, "--partition", "gpus", "--", *SERVICE)
    assert code == 2
    places = [line.removeprefix("error:").split(":")[0].strip() for line in err.splitlines()]
    assert places == ["ASSAY_URL", "ASSAY_WORKER_KEY", "--partition"]


@pytest.mark.parametrize("words", [SLURM, SLURM[:-1]])
def test_a_gateway_without_anybody_is_refused(
    run: Run, fake_slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    code, _, err = run(*words, "--", "--gateway=https://silent.example")
    assert (code, fake_slurm.rows()) == (2, [])
    assert "--gateway after --: no worker would find a service: " in err
    monkeypatch.setenv("ASSAY_GATEWAY", "https://silent.example")
    code, _, err = run(*words, "--", "--data-root", "/data")
    assert (code, "ASSAY_GATEWAY: no worker would find a service: " in err) == (2, True)


def test_the_form_of_a_gateway_is_the_workers_own(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "'assay.example:443' given; allowed: https://host, or http://host on a network of your own"
    for words in (["--gateway", "assay.example:443"], ["--gateway=assay.example:443"]):
        code, _, err = run(*SLURM, "--max", "x", "--", *words)
        assert (code, "--max: must be an integer" in err) == (2, True)
        assert f"--gateway after --: {said}" in err
    monkeypatch.setenv("ASSAY_GATEWAY", "assay.example:443")
    code, _, err = run(*SLURM, "--", "--data-root", "/data")
    assert (code, f"ASSAY_GATEWAY: {said}" in err) == (2, True)


def test_a_second_controller_of_a_name_is_warned(run: Run, fake_slurm: FakeSlurm, api: httpx.Client) -> None:
    api.put(f"{FLEETS}/assay", json=REPORT)
    warning = "warning: a controller of the fleet assay reported at "
    code, _, err = run(*SLURM, "--", *SERVICE)
    assert (code, err.startswith(warning), "choose another --name" in err) == (0, True, True)
    api.put(f"{FLEETS}/assay", json={**REPORT, "phase": "ends"})
    assert warning not in run(*SLURM, "--", *SERVICE)[2]


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
