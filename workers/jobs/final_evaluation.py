"""The final evaluation of a training job's model, on the held-out split."""

from __future__ import annotations

from typing import cast

from assay.service.catalog.catalog import load
from assay.service.catalog.tasks import TaskFacts
from assay.service.contract.problems import Problems
from assay.service.contract.stored_specs import EvaluationItem, TrainJobSpec


def final_evaluation(spec: TrainJobSpec) -> EvaluationItem:
    """The evaluation that the data's task states, with its defaults; for data of several tasks `clean`."""
    catalog = load()
    tasks = catalog.find("data", spec["data"]["name"]).tasks
    final = (catalog.task(tasks[0]) if len(tasks) == 1 else TaskFacts()).final
    problems = Problems()
    checked = catalog.check_reference(("evaluation", "attack"), final.model_dump(), problems, ())
    problems.raise_if_any()
    assert checked is not None
    return cast(EvaluationItem, {"name": final.name, "params": checked.params, "data": None})
