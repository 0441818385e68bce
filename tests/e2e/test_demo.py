"""The demo's study and its looks into the pursuit are accepted by the real service."""

from __future__ import annotations

import pytest

from assay.service.studies import demo
from tests.e2e.running import RunningService


@pytest.mark.costly
def test_the_study_is_two_arms_with_six_seeds_and_is_looked_into(shared: RunningService) -> None:
    client = shared.client
    planned = client.plan_study(demo.study_spec(1))
    assert (planned.jobs, planned.trainings, planned.evaluations) == (24, 12, 12)
    study = client.submit_study({**demo.study_spec(1), "priority": 0})
    checks = [client.submit({**spec, "priority": 0}) for spec in demo.check_specs(study)]
    assert [check.state for check in checks] == ["waiting"] * 6
    assert [check.spec["seed"] for check in checks] == [*range(6)]
    for check in checks:
        client.cancel(check.id)
    client.cancel_study(study.id)
    client.wait_study(study.id, poll_seconds=0.1, timeout_seconds=120)
