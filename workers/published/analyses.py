"""Published results of analyses, for models of the same architecture.

Source: Teo and Nguyen 2024, "Unveiling the Hidden Structure of Self-Attention via Kernel Principal Component
Analysis" (NeurIPS): section 2.2.2 and table 13.
"""

from __future__ import annotations

from assay.service.contract.results import Reference
from assay.workers.published.imagenet import MODELS, PAPER, TINY_MODELS
from assay.workers.published.match import IMAGENET, MeasuredRow, architecture, same_model

__all__ = ["analyses"]

# Absolute, of ViT-tiny, averaged over heads and layers. True eigenvalues of K~ / N together are at most 1
# (`workers/evaluation/eigenvector_check.py`): these cannot be eigenvalues.
EIGENVALUES = {
    "eigenvalue_max": 648.46,
    "eigenvalue_min": 4.65,
    "eigenvalue_mean": 40.07,
    "eigenvalue_median": 17.73,
}
# 10^9 multiply-adds (printed as 1.17M), seconds per sample, MB.
COLUMNS = ("multiply_adds", "train_seconds", "test_seconds", "train_memory", "test_memory", "parameters")
UNITS = (1e9, 1.0, 1.0, 1e6, 1e6, 1e6)
TABLE_13 = dict(
    zip(
        TINY_MODELS,
        (
            (1.17, 0.079, 0.010, 1435, 1181, 5.2),
            (1.22, 0.082, 0.010, 1441, 1181, 5.2),
            (1.23, 0.084, 0.010, 1443, 1181, 5.2),
            (1.25, 0.085, 0.011, 1443, 1181, 5.2),
            (1.35, 0.092, 0.017, 1461, 1181, 5.2),
        ),
        strict=True,
    )
)


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
            for metric, value, unit in zip(COLUMNS, values, UNITS, strict=True)
        ]
    if name == "eigenvector_check" and row.known_as == IMAGENET and same_model(MODELS["ViT"].facts, facts):
        source = f"{PAPER}, section 2.2.2, ViT-tiny; beyond what an eigenvalue of this matrix can be"
        return [
            Reference(metric=metric, value=value, source=source, protocol="no code was released")
            for metric, value in EIGENVALUES.items()
        ]
    return []
