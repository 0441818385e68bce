"""Components of installed packages through the service: those of docs/adding.md, and a broken package."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.service.contract.errors import InvalidSpec
from tests.e2e.jobs import SHAPE, attacking, finished, training
from tests.e2e.running import ROOT, RunningService
from tests.support.packages import install, install_the_page_s

COSINE = {"name": "vit", "params": {**SHAPE, "attention": {"name": "cosine", "params": {"scale": 8.0}}}}
MIFGSM = {"name": "mifgsm", "params": {"epsilon": "8/255", "steps": 3}}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    install_the_page_s(folder)
    return folder


@pytest.fixture
def running() -> Iterator[list[RunningService]]:
    started: list[RunningService] = []
    yield started
    for service in started:
        service.close()


def test_a_package_brings_its_components_and_a_broken_one_harms_nobody(
    site: Path, tmp_path: Path, running: list[RunningService]
) -> None:
    install(site, "broken", "0.1", {"broken": "broken"}, attack="__all__ = ['oops']\nraise SystemExit(3)\n")
    running.append(RunningService(tmp_path / "state", PYTHONPATH=str(site)))
    client = running[0].start().client
    assert client.component("attention", "cosine")["package"] == {"name": "mypkg", "version": "1.2"}
    train = client.submit({**training(1), "model": COSINE}).id
    job = client.submit(attacking(train, [{"name": "clean"}, MIFGSM], model="vit", limit=64)).id
    finished(client, job)
    results = client.results(job)
    clean, attacked = (part.metrics["top1"] for part in results.evaluations)
    assert attacked.n == clean.n == 64
    assert attacked.value < clean.value
    assert results.provenance.packages["mypkg"] == "1.2"
    assert "broken" not in results.provenance.packages
    with pytest.raises(
        InvalidSpec, match=r"broken 0\.1: broken: broken\.attack cannot be imported: SystemExit"
    ):
        client.submit(attacking(None, [{"name": "oops"}]))
    assert "the components of broken 0.1 are left out" in (tmp_path / "state.log").read_text()


def test_a_worker_without_the_package_says_so(
    site: Path, tmp_path: Path, running: list[RunningService]
) -> None:
    file = tmp_path / "extra.json"
    command = [sys.executable, "-m", "assay.workers.catalog", "--out", str(file)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(site)}, check=True)
    running.append(RunningService(tmp_path / "state", ASSAY_CATALOG=str(file)))
    client = running[0].start().client
    job = client.wait(client.submit(attacking(None, [MIFGSM], limit=8)).id, timeout_seconds=120)
    assert job.state == "failed"
    assert job.error is not None
    assert job.error.type == "component_missing"
    assert "the attack 'mifgsm' is of the package mypkg 1.2, which the worker" in job.error.message
    assert "install mypkg==1.2 there" in job.error.message
