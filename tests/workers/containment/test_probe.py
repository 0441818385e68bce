"""What a worker does where a demanded part of the containment is missing."""

from __future__ import annotations

from typing import Any

import pytest

from assay.workers.containment.probe import Sandbox, why_refused
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
