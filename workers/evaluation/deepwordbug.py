"""The recipe DeepWordBug of TextAttack.

Gao et al. 2018, "Black-box Generation of Adversarial Text Sequences to Evade Deep Learning Classifiers".

    s(text) = 1 - softmax(z)_y, y the label
    I_i = s(text with [UNK] for word i)
    in the order of falling I_i: word i becomes the candidate with the highest s, if s rises,
    until argmax_k z_k != y or no word is left; stop words never change
    candidates: one draw each of `swapped_characters`, `substituted_letter`, `deleted_character` and
    `inserted_letter`, within `max_edit_distance` of the unchanged text
"""

from __future__ import annotations

from typing import Annotated

from annotated_types import Interval

from assay.attacks import parameters
from assay.attacks.expectation import Expectation
from assay.attacks.words.libraries import textattack
from assay.attacks.words.search import character_positions, recipes
from assay.workers.evaluation.engine.text.attack import JUDGING, TextAttack, rule_of_texts
from assay.workers.evaluation.engine.text.library_attack import LibraryTextAttack

__all__ = ["deepwordbug"]

TASKS = ("sequence",)
TABLE = "text_attack"
RULES = (rule_of_texts("deepwordbug"), parameters.EOT_RULE)
PAPER = character_positions.PAPER
# Once without each word, then four changes of each, until the prediction changes: of some 20 words.
PASSES = (f"60 * params.eot + {JUDGING}", "0")


def deepwordbug(
    *,
    max_edit_distance: Annotated[int, Interval(ge=0, le=100_000)] = 30,
    eot: parameters.TextEot = 1,
    model_draws: parameters.TextModelDraws = 100,
    backend: parameters.TextBackend = "native",
) -> TextAttack | LibraryTextAttack:
    """Swapped, substituted, deleted and inserted characters, in the order of the words' importance.

    Args:
        max_edit_distance: Levenshtein distance from the unchanged text, at most.
    """
    if backend == "textattack":
        return LibraryTextAttack(lambda _: textattack.deepwordbug(max_edit_distance=max_edit_distance))
    return TextAttack(
        recipes.deepwordbug(max_edit_distance=max_edit_distance), Expectation(eot, draws=model_draws)
    )
