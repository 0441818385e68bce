"""Outcome tables for stored results.

Results of earlier versions have no units: these come from the table of their evaluation. Tables of packages
are on the workers alone, which write the units into the results.
"""

from __future__ import annotations

from assay.service.catalog.catalog import Catalog, load
from assay.service.contract.errors import NotFound
from assay.service.contract.results import EvaluationResult
from assay.service.metrics.registry import TABLES
from assay.service.metrics.table import OutcomeTable, with_units


def table_of(result: EvaluationResult, catalog: Catalog | None = None) -> OutcomeTable | None:
    """The table by evaluation and task; None where the catalog lacks either, or a package brings it."""
    catalog = catalog or load()
    try:
        tasks = catalog.find("data", result.data["name"]).tasks
        name = catalog.find_evaluation(result.name).table_for(tasks)
    except NotFound:
        return None
    return None if name is None else TABLES.get(name)


def read_result(stored: dict[str, object]) -> EvaluationResult:
    """A stored result of any version, with the units of its metrics as far as they are known."""
    result = EvaluationResult.model_validate(stored)
    if all(metric.unit is not None for metric in result.metrics.values()):
        return result
    table = table_of(result)
    return result if table is None else with_units(result, table)
