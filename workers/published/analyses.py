"""Published results of analyses, for models of the same architecture; `analyses.json` has the numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from assay.service.contract.results import Reference
from assay.workers.published.imagenet import MODELS, PAPER
from assay.workers.published.match import IMAGENET, MeasuredRow, architecture, same_model, stated

__all__ = ["analyses"]

_STATED = stated("analyses.json")
EIGENVALUES: Mapping[str, float] = _STATED["eigenvalues"]
UNITS: Mapping[str, float] = _STATED["units"]
TABLE_13: Mapping[str, Sequence[float]] = _STATED["table_13"]


def analyses(row: MeasuredRow) -> list[Reference]:
    """Cost of a model, and eigenvalues of its attention."""
    name, facts = row.evaluation["name"], architecture(row.model)
    if name == "efficiency":
        return [
            Reference(
                metric=metric,
                value=round(value * unit, 6),
                source=f"{PAPER}, table 13, {published}; 1000 classes",
                protocol="another GPU; batch size and how memory was measured not stated",
            )
            for published, values in TABLE_13.items()
            if same_model(MODELS[published].facts, facts)
            for (metric, unit), value in zip(UNITS.items(), values, strict=True)
        ]
    if name == "eigenvector_check" and row.known_as == IMAGENET and same_model(MODELS["ViT"].facts, facts):
        source = f"{PAPER}, section 2.2.2, ViT-tiny; beyond what an eigenvalue of this matrix can be"
        return [
            Reference(metric=metric, value=value, source=source, protocol="no code was released")
            for metric, value in EIGENVALUES.items()
        ]
    return []
