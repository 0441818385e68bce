"""HotFlip with whole words.

Ebrahimi et al. 2018, "HotFlip: White-Box Adversarial Examples for Text Classification", equation 10 for one
swap, section 3.3 for the beam, section 6 for words.

    change of the loss by word w for word i: (e_w - e_i)^T grad_i,    e the words' vectors, loss = -log p(y)
    each step: the `candidates` swaps with the highest estimates, of every text in the beam, are put to the
    model, and the `beam` texts with the highest losses go on, until argmax_k z_k != y
    or `max_share` of the words (one at least) or `steps` words are swapped

Deviations: the estimates choose candidates and the model's own losses decide between them, where the paper
goes by the estimates. The constraints are on words: letters only, no stop words. Of the paper's own,
`min_cosine` (there 0.8) is that on the vectors of a word and of the word that it becomes, here the model's;
that on parts of speech is not here.
"""

from __future__ import annotations

from typing import Annotated

from annotated_types import Interval

from assay.attacks import parameters
from assay.attacks.expectation import Expectation
from assay.attacks.words.search import gradient_swaps
from assay.workers.evaluation.engine.text.attack import JUDGING, rule_of_texts
from assay.workers.evaluation.engine.text.token_attack import OF_WHOLE_WORDS, TokenAttack

__all__ = ["hotflip"]

TASKS = ("sequence",)
TABLE = "text_attack"
NEEDS = ("word_vectors",)
RULES = (
    OF_WHOLE_WORDS,
    rule_of_texts("hotflip"),
    ("data.words == True", "hotflip swaps whole words: the data's tokens are none"),
)
PAPER = "Ebrahimi et al. 2018, HotFlip: White-Box Adversarial Examples for Text Classification"
# The text before and after; in each step a gradient of every text in the beam, and its candidates.
PASSES = (
    f"params.eot * (2 + params.steps * params.beam * (params.candidates + 1)) + {JUDGING}",
    "params.eot * params.steps * params.beam",
)


def hotflip(
    *,
    max_share: Annotated[float, "strength", Interval(gt=0, le=1)] = 0.25,
    steps: Annotated[int, Interval(ge=1, le=1000)] = 10,
    candidates: Annotated[int, Interval(ge=1, le=10_000)] = 10,
    beam: Annotated[int, Interval(ge=1, le=100)] = 3,
    min_cosine: parameters.MinCosine = None,
    eot: parameters.TextEot = 1,
    model_draws: parameters.TextModelDraws = 100,
) -> TokenAttack:
    """Swapped words, chosen by the gradient of the loss by their vectors, in a beam search.

    Args:
        max_share: Share of a text's words that are swapped, at most; one word always may be.
        steps: Words that are swapped, at most.
        candidates: Swaps put to the model in each step, for each text in the beam.
        beam: Texts kept after each step.
    """
    return TokenAttack(
        "hotflip",
        lambda victim, draws: gradient_swaps.hotflip(victim, steps, candidates, beam),
        max_share,
        Expectation(eot, draws=model_draws),
        min_cosine,
    )
