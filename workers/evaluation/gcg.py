"""GCG, greedy coordinate gradient, on text classifiers: drawn swaps from the best by the gradient.

Zou et al. 2023, "Universal and Transferable Adversarial Attacks on Aligned Language Models", algorithm 1.

    X_i = the `candidates` words w with the highest (e_w - e_i)^T grad_i, e: their vectors, loss = -log p(y)
    each step: `tried` times a position i and a word of X_i, both uniformly, make a text with one swap;
    the one with the highest loss goes on, until argmax_k z_k != y; the best of all steps counts
    at most `max_share` of the words (one at least) differ from the text

Deviations: the loss is the classifier's and is raised, where the paper lowers a target string's. The
positions are the text's own words, where the paper appends a suffix. Swaps drawn twice are put to the model
once, and where there are no more than `tried`, all are. Words are letters only, no stop words; `min_cosine`
is HotFlip's constraint on their vectors.
"""

from __future__ import annotations

from typing import Annotated

from annotated_types import Interval

from assay.attacks import parameters
from assay.attacks.expectation import Expectation
from assay.attacks.words.search import gradient_swaps
from assay.workers.evaluation.engine.text.attack import JUDGING, rule_of_texts
from assay.workers.evaluation.engine.text.token_attack import OF_WHOLE_WORDS, TokenAttack

__all__ = ["gcg"]

TASKS = ("sequence",)
TABLE = "text_attack"
NEEDS = ("word_vectors",)
RULES = (
    OF_WHOLE_WORDS,
    rule_of_texts("gcg"),
    ("data.words == True", "gcg swaps whole words: the data's tokens are none"),
)
PAPER = "Zou et al. 2023, Universal and Transferable Adversarial Attacks on Aligned Language Models"
# The text before and after; in each step a gradient and the drawn swaps.
PASSES = (f"params.eot * (2 + params.steps * (params.tried + 1)) + {JUDGING}", "params.eot * params.steps")


def gcg(
    *,
    max_share: Annotated[float, "strength", Interval(gt=0, le=1)] = 0.25,
    steps: Annotated[int, Interval(ge=1, le=10_000)] = 20,
    candidates: Annotated[int, Interval(ge=1, le=10_000)] = 32,
    tried: Annotated[int, Interval(ge=1, le=100_000)] = 64,
    min_cosine: parameters.MinCosine = None,
    eot: parameters.TextEot = 1,
    model_draws: parameters.TextModelDraws = 100,
) -> TokenAttack:
    """Swapped words, drawn from those that the gradient ranks highest; the best of each step goes on.

    Args:
        max_share: Share of a text's words that differ, at most; one word always may.
        steps: Rounds, at most.
        candidates: Words at each position from which is drawn.
        tried: Swaps drawn and put to the model in each step.
    """
    return TokenAttack(
        "gcg",
        lambda victim, draws: gradient_swaps.gcg(victim, draws, steps, candidates, tried),
        max_share,
        Expectation(eot, draws=model_draws),
        min_cosine,
    )
