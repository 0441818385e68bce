"""The final evaluation of a training job's model, on the held-out split."""

from __future__ import annotations

from assay.service.catalog.catalog import load
from assay.service.contract.stored_specs import EvaluationItem, TrainJobSpec

CLEAN: EvaluationItem = {"name": "clean", "params": {}, "data": None}
# One pass over the text; the paper's sliding window takes a pass per word.
PERPLEXITY: EvaluationItem = {
    "name": "perplexity",
    "params": {"window": "blocks", "length": None, "stride": 128},
    "data": None,
}
# With the environment's own target return.
RETURNS: EvaluationItem = {
    "name": "returns",
    "params": {
        "perturbation": "none",
        "epsilon": 0.0,
        "steps": 10,
        "step_size": 0.25,
        "target_return": None,
    },
    "data": None,
}


ERRORS: EvaluationItem = {"name": "rmse", "params": {}, "data": None}


def final_evaluation(spec: TrainJobSpec) -> EvaluationItem:
    """The clean accuracy; perplexity in windows without overlap, returns, or the error of a regression."""
    tasks = load().find("data", spec["data"]["name"]).tasks
    own = {"language": PERPLEXITY, "control": RETURNS, "series_regression": ERRORS}
    return own.get(tasks[0], CLEAN) if len(tasks) == 1 else CLEAN
