"""All evaluations that apply to an image classifier."""

from __future__ import annotations

from typing import Any

from assay.workers.evaluation.suites.quick import quick
from assay.workers.evaluation.suites.rpc_table1 import rpc_table1
from assay.workers.evaluation.suites.rpc_table2 import rpc_table2
from assay.workers.evaluation.suites.standard import INSTEAD as STANDARDS
from assay.workers.evaluation.suites.standard import standard

__all__ = ["full"]

TASKS = ("classification",)
# Evaluations that do not fit the model or the data are left out, and the user is told.
LEAVES_OUT = True
INSTEAD = STANDARDS
ANALYSES = ("efficiency", "projection_loss", "eigenvector_check", "pursuit_check")


def full() -> list[dict[str, Any]]:
    """Calibration, natural shifts, corruptions, analyses and all attack suites, as far as they fit.

    Accuracy with calibration and generated corruptions on the job's data; table 1's other sets where their
    folders are; analyses where the model lets them look; then the suites quick, standard and rpc_table2,
    nothing twice. What does not fit the model, the data or the protocol is left out with the reason.
    """
    accuracy = [{"name": "clean"}, {"name": "top1"}, {"name": "corruptions"}]
    # The first row of the table is accuracy on ImageNet, which the job's data has.
    others = rpc_table1()[1:]
    analyses = [{"name": name} for name in ANALYSES]
    attacks = [*quick(), *standard(), {"name": "carlini_wagner"}, *rpc_table2()]
    found: list[dict[str, Any]] = []
    for item in (*accuracy, *others, *analyses, *attacks):
        if item not in found:
            found.append(item)
    return found
