"""What a training job measures of the model that it has trained, on the held-out split."""

from __future__ import annotations

from assay.service.catalog.catalog import load
from assay.service.contract.stored_specs import EvaluationItem, TrainJobSpec

CLEAN: EvaluationItem = {"name": "clean", "params": {}, "data": None}
# One pass over the text; the sliding window of the paper takes a pass for every word.
PERPLEXITY: EvaluationItem = {
    "name": "perplexity",
    "params": {"window": "blocks", "length": None, "stride": 128},
    "data": None,
}


def final_evaluation(spec: TrainJobSpec) -> EvaluationItem:
    """The clean accuracy, or of a language model the perplexity in windows that do not overlap.

    Args:
        spec: Of a training job, with every default filled in.
    """
    language = load().find("data", spec["data"]["name"]).tasks == ["language"]
    return PERPLEXITY if language else CLEAN
