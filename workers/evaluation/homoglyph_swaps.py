"""Homoglyphs, searched for as DeepWordBug searches.

Boucher et al. 2022, "Bad Characters: Imperceptible NLP Attacks", has the change. TextAttack has it too, but
no recipe with it.

    s(text) = 1 - softmax(z)_y, y the label
    I_i = s(text with [UNK] for word i)
    in the order of falling I_i: word i becomes the candidate with the highest s, if s rises,
    until argmax_k z_k != y or no word is left; stop words never change
    candidates: `homoglyphs`, one for each character that has a look-alike
"""

from __future__ import annotations

from assay.attacks import parameters
from assay.attacks.expectation import Expectation
from assay.attacks.words.search import recipes
from assay.workers.evaluation.engine.text.attack import JUDGING, TextAttack, rule_of_texts

__all__ = ["homoglyph_swaps"]

TASKS = ("sequence",)
TABLE = "text_attack"
RULES = (rule_of_texts("homoglyph_swaps"),)
PAPER = "Boucher et al. 2022, Bad Characters: Imperceptible NLP Attacks"
# Once without each word, then a look-alike of each character, until the prediction changes: of some 20 words.
PASSES = (f"60 * params.eot + {JUDGING}", "0")


def homoglyph_swaps(
    *, eot: parameters.TextEot = 1, model_draws: parameters.TextModelDraws = 100
) -> TextAttack:
    """Characters that look alike, one in each word, in the order of the words' importance."""
    return TextAttack(recipes.homoglyph_swaps(), Expectation(eot, draws=model_draws))
