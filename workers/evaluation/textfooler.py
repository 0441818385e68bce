"""The recipe TextFooler of TextAttack, with word vectors in a local folder, without two of its constraints.

Jin et al. 2020, "Is BERT Really Robust? A Strong Baseline for Natural Language Attack on Text Classification
and Entailment". The published recipe also wants like parts of speech, and sentences that the Universal
Sentence Encoder holds for similar. Neither is here, so that more texts are allowed.

    s(text) = 1 - softmax(z)_y, y the label
    I_i = s(text without word i)
    in the order of falling I_i: word i becomes the candidate with the highest s, if s rises,
    until argmax_k z_k != y or no word is left; stop words never change
    candidates: the `neighbours` words with the nearest vectors, if their cosine is at least `min_similarity`
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated

from annotated_types import Interval

from assay.attacks import parameters
from assay.attacks.expectation import Expectation
from assay.attacks.words.libraries import textattack
from assay.attacks.words.search import recipes
from assay.attacks.words.search.neighbours import Neighbours
from assay.attacks.words.search.recipe import Recipe
from assay.attacks.words.search.vector_files import missing_vectors, read_vectors, written
from assay.workers.data.formats.dataset import CorruptData, MissingData
from assay.workers.data.formats.folders import resolve_folder
from assay.workers.evaluation.engine.text.attack import JUDGING, FolderTextAttack, rule_of_texts
from assay.workers.evaluation.engine.text.library_attack import LibraryTextAttack

__all__ = ["textfooler"]

TASKS = ("sequence",)
# Constraints of the published recipe missing here.
FACTS = {"omitted_constraints": ["part_of_speech", "sentence_encoder"]}
TABLE = "text_attack"
RULES = (
    rule_of_texts("textfooler"),
    parameters.EOT_RULE,
    (
        "params.backend == 'native' or params.min_similarity > 0",
        "TextAttack's recipe wants a min_similarity above 0",
    ),
)
PAPER = "Jin et al. 2020, Is BERT Really Robust?"
# Once without each word, then up to 50 others for each, until the prediction changes: of some 20 words.
PASSES = (f"150 * params.eot + {JUDGING}", "0")
HOW = "docs/text-caches.md says how to get word vectors; nothing is downloaded"


def textfooler(
    *,
    vectors: Annotated[str, "folder"] = "counter-fitted",
    neighbours: Annotated[int, Interval(ge=1, le=200)] = 50,
    min_similarity: Annotated[float, Interval(ge=0, le=1)] = 0.5,
    eot: parameters.TextEot = 1,
    model_draws: parameters.TextModelDraws = 100,
    backend: parameters.TextBackend = "native",
) -> FolderTextAttack | LibraryTextAttack:
    """Words with near vectors, in the order of importance; without parts of speech and sentence encoder.

    Args:
        vectors: Folder of word vectors, relative to ASSAY_DATA_ROOT.
        neighbours: The nearest words of a word that are tried, at most.
        min_similarity: Cosine of a word's vector and that of what it becomes, at least.
    """
    near = functools.partial(_neighbours, vectors, neighbours)

    def native(root: Path | None) -> Recipe:
        return recipes.textfooler(near(root), min_similarity=min_similarity)

    def library(root: Path | None) -> textattack.LibraryRecipe:
        return textattack.textfooler(near(root), count=neighbours, min_similarity=min_similarity)

    if backend == "textattack":
        return LibraryTextAttack(library)
    return FolderTextAttack(native, Expectation(eot, draws=model_draws))


def _neighbours(vectors: str, neighbours: int, root: Path | None) -> Neighbours:
    try:
        folder = resolve_folder(root, vectors)
    except MissingData as error:
        raise MissingData(f"Word vectors are wanted. {error} {HOW}.") from error
    if missing := missing_vectors(folder):
        raise MissingData(f"Word vectors are not in {folder}: {missing} not found. {HOW}.")
    try:
        return _read(folder, neighbours, written(folder))
    except ValueError as error:
        raise CorruptData(f"{error}. {HOW}.") from error


@functools.lru_cache(maxsize=1)
def _read(folder: Path, neighbours: int, _written: tuple[int, ...]) -> Neighbours:
    """Once in an evaluator: shards and jobs share vectors and neighbours; changed files are read again."""
    return Neighbours(*read_vectors(folder), neighbours)
