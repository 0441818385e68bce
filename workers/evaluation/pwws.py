"""The recipe PWWS of TextAttack, with WordNet in a local folder.

Ren et al. 2019, "Generating Natural Language Adversarial Examples through Probability Weighted Word
Saliency".

    s(text) = 1 - softmax(z)_y, y the label
    I_i = softmax_i(s(text with [UNK] for word i)) max_w s(text with w for word i)
    in the order of falling I_i: word i becomes the candidate with the highest s, if s rises,
    until argmax_k z_k != y or no word is left; stop words never change
    candidates w: synonyms of WordNet; without any, the maximum counts as 0
    The paper has max_w s(text with w for word i) - s(text); this is the code of TextAttack
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated

from assay.attacks import parameters
from assay.attacks.expectation import Expectation
from assay.attacks.words.libraries import textattack
from assay.attacks.words.search import recipes
from assay.attacks.words.search.word_change import WordChange
from assay.attacks.words.search.wordnet import missing_files, synonyms
from assay.workers.data.formats.dataset import CorruptData, MissingData
from assay.workers.data.formats.folders import resolve_folder
from assay.workers.evaluation.engine.text.attack import JUDGING, FolderTextAttack, rule_of_texts
from assay.workers.evaluation.engine.text.library_attack import LibraryTextAttack

__all__ = ["pwws"]

TASKS = ("sequence",)
TABLE = "text_attack"
RULES = (rule_of_texts("pwws"), parameters.EOT_RULE)
PAPER = (
    "Ren et al. 2019, Generating Natural Language Adversarial Examples through Probability Weighted Word"
    " Saliency"
)
# Once without each word, then its synonyms twice, until the prediction changes: of some 20 words.
PASSES = (f"150 * params.eot + {JUDGING}", "0")
HOW = "docs/text-caches.md says how to get WordNet; nothing is downloaded"


def pwws(
    *,
    wordnet: Annotated[str, "folder"] = "wordnet",
    eot: parameters.TextEot = 1,
    model_draws: parameters.TextModelDraws = 100,
    backend: parameters.TextBackend = "native",
) -> FolderTextAttack | LibraryTextAttack:
    """Synonyms of WordNet, in the order of the words' saliency times what their best synonym does.

    Args:
        wordnet: Folder of WordNet's files, relative to ASSAY_DATA_ROOT.
    """
    opened = functools.partial(_opened, wordnet)
    if backend == "textattack":
        return LibraryTextAttack(lambda root: textattack.pwws(opened(root)[0]))
    return FolderTextAttack(lambda root: recipes.pwws(opened(root)[1]), Expectation(eot, draws=model_draws))


def _opened(wordnet: str, root: Path | None) -> tuple[Path, WordChange]:
    try:
        folder = resolve_folder(root, wordnet)
    except MissingData as error:
        raise MissingData(f"WordNet is wanted. {error} {HOW}.") from error
    if missing := missing_files(folder):
        raise MissingData(f"WordNet is not in {folder}: {', '.join(missing)} not found. {HOW}.")
    try:
        return folder, synonyms(folder)
    except ValueError as error:
        raise CorruptData(f"{error}. {HOW}.") from error
