"""Recipe of Primal-Attention's language model on WikiText-103: fairseq's Adam and inverse square root.

Chen et al., NeurIPS 2023, with the values of the released command. fairseq's Adam is AdamW here: it decouples
the weight decay and applies it to every parameter. It adds epsilon before the bias correction, torch after
it: the first steps differ for gradients that are not much larger than epsilon, 1e-8. Dropout and tied
embeddings belong to the model.
"""

from __future__ import annotations

from typing import Annotated

from annotated_types import Interval

from assay.workers.training import parameters
from assay.workers.training.recipe import Recipe

__all__ = ["wikitext_fairseq"]

TASKS = ("language",)
PAPER = "Chen et al. 2023, Primal-Attention: Self-attention through Asymmetric Kernel SVD"
RULES = (
    parameters.WARMUP_STEPS_RULE,
    (
        "params.warmup_learning_rate <= params.learning_rate",
        "warmup_learning_rate must not be larger than learning_rate",
    ),
)
# --max-tokens 2048, --update-freq 16
TOKENS = 2048 * 16


def wikitext_fairseq(
    *,
    steps: parameters.Steps = 150_000,
    learning_rate: parameters.LearningRate = 1e-3,
    warmup_steps: parameters.WarmupSteps = 6000,
    warmup_learning_rate: Annotated[float, Interval(ge=0, le=1)] = 1e-7,
    weight_decay: parameters.WeightDecay = 0.01,
    total_tokens: Annotated[int, Interval(ge=1, le=1_073_741_824)] | None = TOKENS,
) -> Recipe:
    """Train a language model as fairseq does on WikiText-103, 32 768 words a step: 64 windows of 512.

    Args:
        learning_rate: Adam's peak; it does not depend on the batch size.
        warmup_steps: linear rise to the peak; then it falls with the inverse square root of the step.
        warmup_learning_rate: where the rise begins.
        weight_decay: decoupled, of all parameters.
        total_tokens: words of a step, reached by accumulating the gradients of smaller batches; null takes
            execution.batch_size windows.
    """
    return Recipe(
        epochs=1,
        steps=steps,
        learning_rate=learning_rate,
        schedule="inverse_sqrt",
        warmup_steps=warmup_steps,
        warmup_learning_rate=warmup_learning_rate,
        weight_decay=weight_decay,
        decay_everything=True,
        betas=(0.9, 0.98),
        total_tokens=total_tokens,
        published_tokens=TOKENS,
    )
