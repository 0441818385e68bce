"""The arithmetic of a job's numbers: what its passes were computed in, by setting; a default says nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.service.contract.stored_specs import Execution

# Coarser than float32: numbers differ by more than its rounding.
COARSE = ("tf32", "bfloat16", "float16")


def arithmetic_settings(execution: Execution, provenance: Mapping[str, Any]) -> dict[str, str]:
    """The `dtype`, and what else was asked for and changes numbers, by setting.

    TF32 on devices without it is float32; without a provenance, which a job has at its end, it is what was
    asked for.
    """
    dtype, device = str(execution["dtype"]), provenance.get("device", {})
    if dtype == "tf32" and device and not any(one.get("tf32") for one in (device, *device.get("mixed", ()))):
        dtype = "float32"
    found = {"dtype": dtype}
    if screening := execution.get("screening"):
        found["screening"] = screening
    if execution.get("channels_last"):
        found["channels_last"] = "true"
    return found
