"""TextAttack's recipes, run by the package's own code.

Morris et al. 2020, "TextAttack". An attack is what `build` of a recipe of TextAttack 0.3.11 makes, without
downloads:

    stop words        the 179 of `stop_words.py`, in place of NLTK's data, which list 198 since 2024
    WordNet           NLTK's reader on a local folder
    word vectors      from a local folder, in place of a download
    PartOfSpeech, UniversalSentenceEncoder    left out, as in the native recipe

It draws from the global generators of Python and numpy.
"""

from __future__ import annotations

import functools
import importlib
import io
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Literal, NamedTuple

from torch import Tensor

from assay.attacks.words.search.neighbours import Neighbours
from assay.attacks.words.search.stop_words import ENGLISH

PACKAGE = "textattack"
RECIPES = "textattack.attack_recipes"
# NLTK's reader wants names for the numbers of lexicographer files, which the recipes never read.
LEXNAMES = "".join(f"{number:02d}\tlexname.{number}\t0\n" for number in range(45))

Probabilities = Callable[[Sequence[str]], Tensor]
"""The model: texts to the probabilities of classes, float64 (B, classes), finite."""
Ending = Literal["skipped", "succeeded", "failed"]
# Of TextAttack's results, by the names of their types.
STATUSES: Mapping[str, Ending] = {
    "SkippedAttackResult": "skipped",
    "SuccessfulAttackResult": "succeeded",
    "FailedAttackResult": "failed",
}


class Attacked(NamedTuple):
    """Result of an attack: the text that counts, and the texts queried, repeated ones included."""

    status: Ending
    text: str
    queries: int


@dataclass(frozen=True)
class LibraryRecipe:
    """A recipe of the package: a class in a module, and what its names there mean while `build` runs."""

    name: str
    module: str
    kind: str
    parts: Callable[[ModuleType], Mapping[str, Any]]
    arguments: Mapping[str, Any]

    def attack(self, model: Probabilities, text: str, label: int) -> Attacked:
        """Attacks one text of a class; nothing is kept for the next one."""
        package()
        recipe = importlib.import_module(f"{RECIPES}.{self.module}")
        with _stop_words(), _replaced(recipe, self.parts(recipe)):
            attack = getattr(recipe, self.kind).build(_wrapped(model), **self.arguments)
        attack.constraints = [part for part in attack.constraints if type(part).__name__ != "LeftOut"]
        result = attack.attack(text, label)
        return Attacked(STATUSES[type(result).__name__], result.perturbed_text(), result.num_queries)


def deepwordbug(*, max_edit_distance: int) -> LibraryRecipe:
    """DeepWordBugGao2018."""

    def parts(recipe: ModuleType) -> Mapping[str, Any]:
        distance = recipe.LevenshteinEditDistance
        return {"LevenshteinEditDistance": lambda _: distance(max_edit_distance)}

    return LibraryRecipe("deepwordbug", "deepwordbug_gao_2018", "DeepWordBugGao2018", parts, {})


def pruthi(*, max_words: int) -> LibraryRecipe:
    """Pruthi2019."""
    arguments = {"max_num_word_swaps": max_words}
    return LibraryRecipe("pruthi", "pruthi_2019", "Pruthi2019", lambda _: {}, arguments)


def pwws(folder: Path) -> LibraryRecipe:
    """PWWSRen2019 with WordNet's files in a folder."""

    def parts(recipe: ModuleType) -> Mapping[str, Any]:
        reader, swap = _wordnet(folder), recipe.WordSwapWordNet
        source = importlib.import_module(swap.__module__)

        class Synonyms(swap):  # type: ignore[misc, valid-type]
            """The package's swap without the download of other languages."""

            def __init__(self) -> None:
                self.language = "eng"

            def _get_replacement_words(self, word: str, random: bool = False) -> list[str]:
                with _replaced(source, {"wordnet": reader}):
                    found: list[str] = super()._get_replacement_words(word, random)
                return found

        return {"WordSwapWordNet": Synonyms}

    return LibraryRecipe("pwws", "pwws_ren_2019", "PWWSRen2019", parts, {})


def textfooler(neighbours: Neighbours, *, count: int, min_similarity: float) -> LibraryRecipe:
    """TextFoolerJin2019 with given word vectors, `count` neighbours, and a cosine above 0 at least."""

    def parts(recipe: ModuleType) -> Mapping[str, Any]:
        embedding, constraint = _embedding(neighbours), _left_out()
        swap, near = recipe.WordSwapEmbedding, recipe.WordEmbeddingDistance
        return {
            "WordSwapEmbedding": lambda max_candidates: swap(max_candidates=count, embedding=embedding),
            "WordEmbeddingDistance": lambda min_cos_sim: near(embedding, min_cos_sim=min_similarity),
            "PartOfSpeech": constraint,
            "UniversalSentenceEncoder": constraint,
        }

    return LibraryRecipe("textfooler", "textfooler_jin_2019", "TextFoolerJin2019", parts, {})


@functools.cache
def package() -> ModuleType:
    """The package without downloads and traces in the user's folders. Raises ImportError: not installed."""
    import nltk

    before = dict(os.environ)
    offline = _replaced(nltk, {"download": lambda *_, **__: True})
    with tempfile.TemporaryDirectory() as home, offline, _stop_words():
        # Its cache is below the home folder; another variable of its own would move the caches of others.
        os.environ |= {"HOME": home, "HF_HUB_OFFLINE": "1"}
        os.environ.pop("TA_CACHE_DIR", None)
        logging.disable(logging.WARNING)  # it announces downloads that do not happen
        try:
            found = importlib.import_module(PACKAGE)
        finally:
            logging.disable(logging.NOTSET)
            os.environ.clear()
            os.environ |= before
    # It warns of each model whose type it does not know.
    found.shared.logger.setLevel(logging.ERROR)
    return found


def _wrapped(model: Probabilities) -> Any:
    from textattack.models.wrappers import ModelWrapper

    class Wrapper(ModelWrapper):  # type: ignore[misc]
        """The model for the package."""

        model = None

        def __call__(self, texts: Sequence[str], **_: Any) -> Tensor:
            return model(texts)

    return Wrapper()


def _left_out() -> type:
    from textattack.constraints import Constraint

    class LeftOut(Constraint):  # type: ignore[misc]
        """In place of a constraint that cannot be had; taken out of the attack again."""

        def __init__(self, **_: Any) -> None:
            super().__init__(compare_against_original=True)

        def _check_constraint(self, transformed_text: Any, reference_text: Any) -> bool:
            raise AssertionError("a constraint that is left out was asked")

    return LeftOut


def _embedding(neighbours: Neighbours) -> Any:
    from textattack.shared import AbstractWordEmbedding

    class Vectors(AbstractWordEmbedding):  # type: ignore[misc]
        """Word vectors for the package: a word is its own index."""

        def __getitem__(self, index: str) -> None:
            raise AssertionError("the recipe asks for no vector")

        def get_mse_dist(self, a: str, b: str) -> float:
            raise AssertionError("the recipe asks for cosines")

        def get_cos_sim(self, a: str, b: str) -> float:
            cosine = neighbours.cosine(a, b)
            assert cosine is not None
            return cosine

        def word2index(self, word: str) -> str:
            if neighbours.cosine(word, word) is None:
                raise KeyError(word)
            return word

        def index2word(self, index: str) -> str:
            return index

        def nearest_neighbours(self, index: str, topn: int) -> list[str]:
            return neighbours.of(index)[:topn]

    return Vectors()


@functools.lru_cache(maxsize=1)
def _wordnet(folder: Path) -> Any:
    import nltk
    from nltk.corpus.reader import WordNetCorpusReader

    class Reader(WordNetCorpusReader):  # type: ignore[misc]
        """NLTK's reader on the files that the native recipe wants."""

        def open(self, file: str) -> Any:
            if file == "lexnames" and not (folder / file).is_file():
                return io.StringIO(LEXNAMES)
            return super().open(file)

        def map_wn(self, *_: Any) -> None:
            """No other version of WordNet is asked for."""

    if str(folder) not in nltk.data.path:
        nltk.data.path.append(str(folder))  # NLTK reads no other folders
    return Reader(str(folder), omw_reader=object())


def _stop_words() -> AbstractContextManager[None]:
    words = SimpleNamespace(words=lambda language: sorted(ENGLISH))
    # By its full name: as an attribute of `nltk` it is an object that imports it.
    return _replaced(importlib.import_module("nltk.corpus"), {"stopwords": words})


@contextmanager
def _replaced(module: ModuleType, names: Mapping[str, Any]) -> Iterator[None]:
    before = {name: getattr(module, name) for name in names}
    vars(module).update(names)
    try:
        yield
    finally:
        vars(module).update(before)
