"""The reference of the metrics, from what an empty service shows to Prometheus."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

from prometheus_client.metrics_core import Metric

from assay.service.api.metrics import Numbers
from assay.service.connection_guard import ConnectionGuard
from assay.service.settings import Settings
from assay.service.store.overview import Overview
from assay.service.store.store import Store
from assay.service.telemetry import Requests
from supply.site.markdown import cell, code, table

EMPTY = Overview({}, {}, 0.0, 0.0, 0.0, (), {})


class _Distributed(Settings):
    @property
    def redis(self) -> str:
        return "redis://127.0.0.1:1/0"  # a port that refuses at once


def page() -> str:
    """Every metric with its type and meaning."""
    rows = [[code(_name(one)), one.type, cell(one.documentation)] for one in families()]
    return table(["metric", "type", "meaning"], rows)


def families() -> list[Metric]:
    """The metrics of Assay, in the order of an answer to an `admin` key."""
    settings = _Distributed(state=Path(__file__).parent)  # a folder that is there: its disk is shown
    opener = cast("Store", SimpleNamespace(overview=lambda: EMPTY))
    numbers = Numbers(settings, "", Requests(), lambda: opener, ConnectionGuard(settings))
    try:
        found = numbers.registry(0, tenants=True).collect()
        return [one for one in found if one.name.startswith("assay_")]
    finally:
        numbers.close()


def _name(family: Metric) -> str:
    return f"{family.name}_total" if family.type == "counter" else family.name
