"""How a job is run: what does not go together in `execution`, or not with the kind of job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.service.contract.problems import Report


def check_execution(given: object, protocol: str | None, report: Report) -> None:
    """Report what a job cannot be run with.

    Args:
        given: The `execution` of a job spec, well-formed or not.
        protocol: Of an evaluation; None for a training.
        report: Receives what is wrong.
    """
    execution: dict[str, Any] = given if isinstance(given, dict) else {}
    screening = execution.get("screening")
    if screening is not None and protocol != "pixel":
        message = (
            "only attacks under the protocol 'pixel' can be screened: the worst case of both runs counts"
        )
        report.add(("execution", "screening"), message, given=screening, allowed=[None])
    elif screening is not None and execution.get("dtype", "float32") != "float32":
        message = "only float32 is screened: bfloat16 is confirmed without autocast anyway"
        report.add(("execution", "screening"), message, given=screening, allowed=[None])
    _check_devices(execution, protocol, report)
    # Only evaluations have a protocol.
    if protocol is not None and execution.get("dtype") == "float16":
        message = "float16 is for training: gradients of attacks vanish in it"
        allowed = ["float32", "float64", "bfloat16"]
        report.add(("execution", "dtype"), message, given="float16", allowed=allowed)


def _check_devices(execution: Mapping[str, Any], protocol: str | None, report: Report) -> None:
    devices, batch = execution.get("devices", 1), execution.get("batch_size")
    if not isinstance(devices, int) or devices <= 1:  # what is no number is reported elsewhere
        return
    if protocol is not None:
        message = (
            "only a training uses several devices of one worker: an evaluation is cut into shards, which"
        )
        message += " run on as many workers as there are"
        report.add(("execution", "devices"), message, given=devices, allowed=[1])
    elif isinstance(batch, int) and batch < 2 * devices - 1:
        message = (
            f"{devices} devices share every batch, in pairs: it needs at least {2 * devices - 1} examples"
        )
        report.add(("execution", "batch_size"), message, given=batch)
