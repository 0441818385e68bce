"""What a worker does where a demanded part of the containment is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from assay.workers.containment.probe import Sandbox, missing_parts, why_refused
from assay.workers.settings import WorkerSettings
from tests.support.workers import wait_for


@pytest.mark.parametrize(
    ("mode", "user", "missing", "expected"),
    [
        ("auto", "auto", "user", None),
        ("auto", "required", "files", None),
        ("auto", "required", "user", "ASSAY_SANDBOX_USER"),
        ("required", "auto", "user", None),
        ("required", "required", "user", "ASSAY_SANDBOX_USER"),
        ("required", "required", "user files", "ASSAY_SANDBOX ASSAY_SANDBOX_USER"),
    ],
)
def test_a_demanded_user_that_is_missing_refuses_work_and_names_the_smaller_step(
    mode: Any, user: Any, missing: str, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "assay.workers.containment.probe.missing_parts", lambda _: dict.fromkeys(missing.split(), "why")
    )
    trial = WorkerSettings(sandbox=mode, sandbox_user=user).trial
    said, sandbox = why_refused(trial), Sandbox(trial)
    sandbox.find_out()
    assert wait_for(lambda: sandbox.record)
    assert sandbox.refuses == (expected is not None)
    if expected is None:
        assert said is None
    else:
        demands, steps = (" and ".join(f"{n}={to}" for n in expected.split()) for to in ("required", "auto"))
        assert said is not None
        assert said.startswith(f"{demands}, but")
        assert said.endswith(f"With {steps} work is taken without them")


def test_a_user_cannot_be_demanded_without_containment() -> None:
    with pytest.raises(ValueError, match="ASSAY_SANDBOX=off") as raised:
        WorkerSettings(sandbox="off", sandbox_user="required")
    assert raised.match("sandbox_user")


@pytest.mark.costly
def test_the_program_prints_what_a_service_with_its_environment_finds(tmp_path: Path) -> None:
    """pytest's folders are closed to other users, so the part `user` is missing for root, too."""
    command = [sys.executable, "-P", "-m", "assay.workers.containment.probe"]

    def said(**settings: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"ASSAY_STATE": str(tmp_path / "state")} | settings
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    printed = json.loads(said().stdout)
    assert "user" in printed
    assert printed == missing_parts(WorkerSettings(state=tmp_path / "state").trial)
    assert "user" not in json.loads(said(ASSAY_SANDBOX_USER="off").stdout)
    wrong = said(ASSAY_SANDBOX_USER="some")
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert wrong.stderr.startswith("ASSAY_SANDBOX_USER:")
