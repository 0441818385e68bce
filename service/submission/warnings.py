"""Warnings about a valid job before it runs."""

from __future__ import annotations

from typing import Any

from assay.service.catalog.catalog import Catalog
from assay.service.contract.stored_specs import UserSpec
from assay.service.submission.suites import left_out_warnings
from assay.service.submission.weights import WeightsSource


def submission_warnings(
    catalog: Catalog, spec: UserSpec, source: WeightsSource | None
) -> list[dict[str, Any]]:
    """The warnings of a valid job: {"code", "message", "evidence"} each.

    Args:
        catalog: Has the data.
        spec: With every default filled in.
        source: Of its model's weights, if known.
    """
    warnings: list[dict[str, Any]] = []
    if spec["kind"] != "evaluate":
        return warnings
    if spec["model"]["weights"] is None:
        message = "the model has random weights: nothing says where to take trained ones from"
        warnings.append({"code": "untrained_weights", "message": message, "evidence": {"weights": None}})
    if source is not None and source.foreign and source.stated["normalization"] is None:
        message = (
            "the upload did not say which mean and std the weights were trained with: the data's are used"
        )
        evidence = {"normalization": None}
        warnings.append({"code": "foreign_normalization", "message": message, "evidence": evidence})
    available = (catalog.find("data", spec["data"]["name"]).facts or {}).get("test")
    if available is not None and spec["limit"] is not None and spec["limit"] < available:
        warnings.append(
            {
                "code": "subset",
                "message": f"{spec['limit']} of {available} test examples are used",
                "evidence": {"limit": spec["limit"], "available": available},
            }
        )
    warnings += [warning.model_dump() for warning in left_out_warnings(spec)]
    return warnings
