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


def final_evaluation(spec: TrainJobSpec) -> EvaluationItem:
    """The clean accuracy, or for a language model the perplexity in windows without overlap.

    Args:
        spec: Of a training job, with every default filled in.
    """
    language = load().find("data", spec["data"]["name"]).tasks == ["language"]
    return PERPLEXITY if language else CLEAN
