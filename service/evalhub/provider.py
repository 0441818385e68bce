"""The provider as EvalHub describes it: a benchmark for each suite, and the command that runs it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

from assay.service.catalog.catalog import Catalog
from assay.service.catalog.component import EVALUATIONS, Component
from assay.service.metrics.registry import TABLES
from assay.service.plots.series import ACCURACIES
from assay.service.reports.run_record import HIGH, LOW

PROGRAM = "assay-evalhub"
WORST = "worst_case_accuracy"
SUMMARY = "Robustness of models: attacks, corruptions and shifts, each number with its 95 % interval"
HINTS = [
    "model.name is a model of the Assay service: example, job:ID, checkpoint:NAME, or pulled weights such as"
    " timm:NAME; model.url is not read",
    'parameters.data is a data set of the service, such as "digits", and always given',
]
JUDGED = (
    f"The lower end of the 95 % interval of {WORST}, which a threshold is held against; higher is better."
)


def provider(catalog: Catalog, url: str | None) -> dict[str, Any]:
    """EvalHub's description of this provider: a benchmark for each suite."""
    beside = Path(sys.executable).with_name(PROGRAM)  # its environment need not be on the server's path
    command = f"exec {shlex.quote(str(beside) if beside.exists() else PROGRAM)}"
    runs: dict[str, Any] = {"command": command}
    if url is not None:
        runs["env"] = [{"name": "ASSAY_URL", "value": url}]
    return {
        "id": "assay",
        "name": "assay",
        "title": "Assay",
        "description": SUMMARY,
        "tags": ["robustness", "adversarial"],
        "agent": {"evaluates": ["robustness"], "target_type": "model", "summary": SUMMARY, "hints": HINTS},
        "runtime": {"local": runs},
        "benchmarks": [_benchmark(catalog, suite) for suite in catalog.list("suite")],
    }


def _benchmark(catalog: Catalog, suite: Component) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": suite.name,
        "name": suite.name,
        "description": suite.summary,
        "category": "robustness",
        "tags": suite.tasks,
    }
    if _has_accuracy(catalog, suite):
        found["metrics"] = [WORST, f"{WORST}{LOW}", f"{WORST}{HIGH}"]
        found["primary_score"] = {"metric": f"{WORST}{LOW}", "lower_is_better": False}
        found["agent"] = {"result_interpretation": JUDGED}
    return found


def _has_accuracy(catalog: Catalog, suite: Component) -> bool:
    rows = [one for one in catalog.list() if one.kind in EVALUATIONS]
    tables = {one.name: TABLES.get(one.table_for(suite.tasks) or "") for one in rows}
    named = (tables.get(item["name"]) for item in suite.evaluations or ())
    return any(table is not None and set(ACCURACIES) & set(table.units) for table in named)
