"""The recipe Pruthi2019 of TextAttack.

Pruthi et al. 2019, "Combating Adversarial Misspellings with Robust Word Recognition".

    s(text) = 1 - softmax(z)_y, y the label
    text <- the candidate with the highest s, until argmax_k z_k != y or no candidate is left
    candidates: one more word changed in every way by `swapped_characters`, `deleted_character`,
    `inserted_letter` (one draw at each place) and `neighbouring_key`, first and last characters kept;
    words of 4 characters or more that are no stop words, `max_words` at most
"""

from __future__ import annotations

from typing import Annotated

from annotated_types import Interval

from assay.attacks import parameters
from assay.attacks.expectation import Expectation
from assay.attacks.words.libraries import textattack
from assay.attacks.words.search import recipes
from assay.workers.evaluation.engine.text.attack import JUDGING, TextAttack, rule_of_texts
from assay.workers.evaluation.engine.text.library_attack import LibraryTextAttack

__all__ = ["pruthi"]

TASKS = ("sequence",)
TABLE = "text_attack"
RULES = (rule_of_texts("pruthi"), parameters.EOT_RULE)
PAPER = "Pruthi et al. 2019, Combating Adversarial Misspellings with Robust Word Recognition"
# Every typing error of some seven words, for each word that may be changed.
PASSES = (f"params.eot * (250 * params.max_words) + {JUDGING}", "0")


def pruthi(
    *,
    max_words: Annotated[int, "strength", Interval(ge=1, le=100)] = 1,
    eot: parameters.TextEot = 1,
    model_draws: parameters.TextModelDraws = 100,
    backend: parameters.TextBackend = "native",
) -> TextAttack | LibraryTextAttack:
    """Typing errors: swapped, deleted and inserted characters and neighbouring keys, in few words.

    Args:
        max_words: How many words may be changed, each once.
    """
    if backend == "textattack":
        return LibraryTextAttack(lambda _: textattack.pruthi(max_words=max_words))
    return TextAttack(recipes.pruthi(max_words=max_words), Expectation(eot, draws=model_draws))
