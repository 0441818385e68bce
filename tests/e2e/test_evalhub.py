"""Suites as benchmarks of EvalHub's own server: submit, poll, fetch, and a provider killed in the middle."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.service.catalog.catalog import load
from assay.service.evalhub.provider import PROGRAM
from tests.e2e.running import FAST, SHARDED, RunningService, wait_for
from tests.support.evalhub_server import EvalHub, install_server, job_folder, running_evalhub

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

SECONDS = 900
SUITE, PARAMETERS = "quick", {"data": "digits", "num_examples": 60}
THRESHOLD = 0.01
OWN = {**FAST, **SHARDED, "ASSAY_WORKERS": "1"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_server(tmp_path_factory.mktemp("server") / "packages")


@pytest.fixture(scope="module", params=["named", "own"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str | None]:
    """The address of a running service; None: each benchmark starts its own."""
    if request.param == "own":
        yield None
        return
    service = RunningService(tmp_path_factory.mktemp("assay") / "state", **OWN).start()
    yield service.client.url
    service.close()


@pytest.fixture(scope="module")
def hub(server: Path, url: str | None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EvalHub]:
    """EvalHub with the provider file that `assay evalhub` prints."""
    command = [
        sys.executable,
        "-P",
        "-m",
        "assay.service.cli.main",
        "evalhub",
        *(["--url", url] if url else []),
    ]
    provider = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    with running_evalhub(server, tmp_path_factory.mktemp("hub") / "config", provider, OWN) as hub:
        yield hub


def result(job: dict[str, Any]) -> dict[str, Any]:
    (found,) = job["results"]["benchmarks"]
    return dict(found)


@pytest.fixture(scope="module")
def undisturbed(hub: EvalHub) -> dict[str, Any]:
    """A job that nothing happened to."""
    return hub.ended(hub.submit("example", SUITE, PARAMETERS, THRESHOLD), SECONDS)


def test_a_suite_is_submitted_polled_and_fetched(hub: EvalHub, undisturbed: dict[str, Any]) -> None:
    (provider,) = hub.providers()
    assert {one["id"] for one in provider["benchmarks"]} == set(load().names("suite"))
    assert undisturbed["status"]["state"] == "completed", undisturbed["status"]
    found = result(undisturbed)
    metrics, card = found["metrics"], found["artifacts"]["evalhub.env_card"]
    assert metrics["clean/top1"] > 0.9
    assert metrics["clean/top1_n"] == 60
    low = metrics["worst_case_accuracy_ci_low"]
    assert low <= metrics["worst_case_accuracy"] <= metrics["worst_case_accuracy_ci_high"]
    # EvalHub holds the threshold against the interval's lower end.
    test = found["test"]
    assert test["primary_score_metric"] == "worst_case_accuracy_ci_low"
    assert (test["primary_score"], test["pass"]) == (pytest.approx(low, abs=1e-6), low >= THRESHOLD)
    assert card["confidence_intervals"]["clean/top1"]["n"] == 60
    assert card["key_packages"]["torch"]
    assert len(card["model_version"]) == len(card["dataset_hash"]) == 64
    assert {one["code"] for one in card["custom"]["warnings"]} >= {"subset"}


def provider_of(job: str) -> int | None:
    """The process that runs a job's benchmark."""
    wanted = f"EVALHUB_JOB_SPEC_PATH={job_folder(job, SUITE)}/".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (
                wanted in (folder / "environ").read_bytes()
                and PROGRAM.encode() in (folder / "cmdline").read_bytes()
            ):
                return int(folder.name)
        except OSError:
            continue
    return None


def test_a_killed_provider_goes_on_with_the_same_bits(
    hub: EvalHub, url: str | None, undisturbed: dict[str, Any]
) -> None:
    job = hub.submit("example", SUITE, PARAMETERS, THRESHOLD)
    folder = job_folder(job, SUITE)
    log = folder / "jobrun.log"
    wait_for(lambda: log.exists() and re.search(r"is running, [1-9]", log.read_text()), SECONDS)
    pid = provider_of(job)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: provider_of(job) is None, 30)
    assert "has its results" not in log.read_text()
    assert hub.job(job)["status"]["state"] == "running"
    before = re.findall(r"job (\w+) is running", log.read_text())

    environment = {name: text for name, text in os.environ.items() if not name.startswith("ASSAY_")}
    environment |= {"EVALHUB_JOB_SPEC_PATH": str(folder / "meta" / "job.json"), **OWN}
    environment |= {"ASSAY_URL": url} if url else {}
    command = [Path(sys.executable).with_name(PROGRAM)]
    again = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS)
    assert again.returncode == 0, again.stderr
    assert set(re.findall(r"job (\w+) is running", again.stderr)) <= set(before)

    found, first = result(hub.ended(job, 60)), result(undisturbed)
    assert found["metrics"] == first["metrics"]
    assert found["test"] == first["test"]
    assert found["additional_info"]["assay_job"] == before[0]
    assert found["additional_info"]["assay_job"] != first["additional_info"]["assay_job"]


def test_bad_parameters_fail_the_benchmark_in_our_words(hub: EvalHub, url: str | None) -> None:
    if url is None:
        pytest.skip("the same refusal after another start of a service")
    job = hub.ended(hub.submit("example", SUITE, {"data": "digist", "seed": -1}, THRESHOLD), 120)
    (status,) = job["status"]["benchmarks"]
    told = status["error_message"]
    assert (status["status"], told["message_code"]) == ("failed", "invalid_spec")
    assert all(part in told["message"] for part in ("did you mean 'digits'?", "seed: "))
