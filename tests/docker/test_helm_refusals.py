"""The Helm chart refuses values that cannot work, or that it would ignore."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from assay.service.settings import Settings
from assay.workers.settings import WorkerSettings
from tests.support.chart import CHART, LEAST, rendered_with, run, with_values

LISTED = yaml.safe_load((CHART / "settings.yaml").read_text())


def refusal(over: dict[str, Any]) -> str:
    """What Helm says of the values."""
    done = run("template", "lab", str(CHART), values=with_values(LEAST, over))
    assert done.returncode != 0
    return done.stderr


def settings(part: str, **given: object) -> dict[str, Any]:
    return {part: {"settings": {f"ASSAY_{name}": value for name, value in given.items()}}}


@pytest.mark.parametrize(
    ("over", "said"),
    [
        (
            {"image": {"registry": "https://registry.example"}},
            'image.registry: "https://registry.example" given; allowed: host[:port][/path]',
        ),
        ({"image": {"registry": "registry.example/assay/"}}, "image.registry: "),
        ({"storage": {"state": {"accessMode": "ReadWriteOnce"}}}, "value must be 'ReadWriteMany'"),
        ({"workers": {"idleSeconds": 14401}}, "14401 given; allowed: at most workers.seconds, 14400"),
        (
            settings("service", DATABASE_URL="x"),
            "service.settings.ASSAY_DATABASE_URL: the chart sets it; allowed: the value database.url",
        ),
        ({"database": {"cidr": ["10.0.0.10/32", "postgres"]}}, "/database/cidr/1"),
        ({"workers": {"gateway": {"url": "https://nodes.example"}}}, "at '/workers/gateway/to'"),
        (
            {"workers": {"gateway": {"url": "https://nodes.example", "cidr": "10.0.0.1/32"}}},
            "allowed: an address of assay.example (host, gateway.host)",
        ),
        (settings("workers", GATEWAY="https://x"), "allowed: the value workers.gateway.url"),
        (settings("workers", REPEAT=0.1), "the service decides it for these workers; allowed: service"),
        (settings("keeper", STATE="/x"), "keeper.settings.ASSAY_STATE: the chart sets it\n"),
        (settings("service", NO_SUCH_SETTING=1), "ASSAY_NO_SUCH_SETTING: no setting of Assay\n"),
        (settings("service", MAX_QUEUED_JOB=1), "no setting of Assay; did you mean ASSAY_MAX_QUEUED_JOBS?"),
        (settings("service", LEASE_SECONDS=60), "it is a setting of keeper.settings or workers.settings"),
        (settings("workers", MAX_WEBHOOKS=1), "ASSAY_MAX_WEBHOOKS: it is a setting of service.settings"),
    ],
)  # fmt: skip
def test_a_value_that_cannot_work_is_refused_in_words(over: dict[str, Any], said: str) -> None:
    assert said in refusal(over)


def test_all_faults_are_told_at_once() -> None:
    over = with_values(settings("service", NO_SUCH_SETTING=1), {"workers": {"idleSeconds": 99999}})
    said = refusal(with_values(over, settings("keeper", REDIS_URL="x")))
    for fault in ("workers.idleSeconds", "ASSAY_NO_SUCH_SETTING", "keeper.settings.ASSAY_REDIS_URL"):
        assert fault in said


def test_registries_and_settings_that_work_are_taken() -> None:
    for registry in ("localhost:5000", "ghcr.io/lab/assay", "123.dkr.ecr.eu-1.amazonaws.com/a_b"):
        assert rendered_with(with_values(LEAST, {"image": {"registry": registry}}))
    taken = with_values(settings("service", REPEAT=0.1), settings("keeper", SANDBOX="auto"))
    taken["service"]["settings"]["OTEL_SERVICE_NAME"] = "assay"
    assert rendered_with(with_values(LEAST, taken))


def test_the_charts_list_of_settings_is_the_codes() -> None:
    service, workers = ({name.upper() for name in kind.model_fields} for kind in (Settings, WorkerSettings))
    assert {part: set(LISTED[part]) for part in ("both", "service", "workers")} == {
        "both": service & workers,
        "service": service - workers,
        "workers": workers - service,
    }
    assert {*LISTED["values"], *LISTED["fixed"]} <= service | workers
