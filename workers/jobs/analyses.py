"""From the rows of an analysis to what it found: the analysis's own part of the merge.

The function is `summarise` in the module of `service/metrics/analyses/` that has the analysis's name.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from assay.service.contract.stored_specs import Params
from assay.service.metrics.analyses.summary import Summarise, Summary
from assay.service.store.rows import OutcomeRow


def summarise(
    params: Params, rows: Sequence[OutcomeRow], columns: Mapping[str, Sequence[Any]]
) -> Summary | None:
    """What an analysis found; None of an evaluation that is none.

    Args:
        params: Of the evaluation.
        rows: The outcomes of all shards.
        columns: Their columns, sorted by id.
    """
    name = rows[0].extra.get("analysis") if rows else None
    if name is None:
        return None
    merge: Summarise = importlib.import_module(f"assay.service.metrics.analyses.{name}").summarise
    ordered = sorted(rows, key=lambda row: row.number)
    evidence = [row.extra["evidence"] for row in ordered]
    return merge(columns, params=params, evidence=evidence, device=ordered[0].extra["provenance"]["device"])
