"""Reference results of plain TextAttack: `tests/vectors/textattack.json`.

Runs in an environment of its own, because TextAttack holds other packages back. From the root of the
checkout:

    uv venv /tmp/textattack
    uv pip install --python /tmp/textattack "textattack==0.3.11" "flair>=0.15" \
        "transformers<5" "pyarrow<21"
    PYTHONPATH=. /tmp/textattack/bin/python tests/support/textattack_reference.py

Nothing is downloaded: NLTK finds the list of stop words and a small WordNet in a folder that is made here.
The only thing of TextAttack's that is replaced is where its random numbers come from: our draws, keyed by
word. TextFooler is its recipe with the word vectors of the tests, less the two constraints that want a tagger
and TensorFlow.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import tests
from assay.attacks.words.search.draws import Draws
from assay.attacks.words.search.stop_words import ENGLISH

# One of TextAttack's dependencies installs a package of this name.
tests.__path__ = [str(Path(__file__).resolve().parents[1]), *tests.__path__]
from tests.support.sentences import SENTENCES  # noqa: E402
from tests.support.word_models import probabilities  # noqa: E402
from tests.support.word_vectors import VECTORS as WORD_VECTORS  # noqa: E402
from tests.support.wordnet_files import write_wordnet  # noqa: E402

VECTORS = Path(__file__).resolve().parents[1] / "vectors" / "textattack.json"
SEED = 3
# Their class to the name that our draws are keyed by.
NAMES = {
    "WordSwapNeighboringCharacterSwap": "swapped_characters",
    "WordSwapRandomCharacterSubstitution": "substituted_letter",
    "WordSwapRandomCharacterDeletion": "deleted_character",
    "WordSwapRandomCharacterInsertion": "inserted_letter",
    "WordSwapQWERTY": "neighbouring_key",
}


def prepare(folder: Path) -> None:
    """NLTK's data, and no way to any other."""
    (folder / "corpora" / "stopwords").mkdir(parents=True)
    (folder / "corpora" / "stopwords" / "english").write_text("\n".join(sorted(ENGLISH)) + "\n")
    write_wordnet(folder / "corpora" / "wordnet")
    (folder / "corpora" / "omw-1.4").mkdir()
    os.environ |= {"NLTK_DATA": str(folder), "HF_HUB_OFFLINE": "1", "TA_CACHE_DIR": str(folder / "cache")}
    import nltk

    nltk.data.path[:] = [str(folder)]
    nltk.download = lambda *_arguments, **_options: True
    package = importlib.util.find_spec("textattack")
    assert package is not None
    assert package.origin is not None
    # The wheel of 0.3.11 lacks it, and homoglyphs are not to be had without it; other attacks read it.
    (Path(package.origin).parent / "shared" / "intentional_homoglyphs.txt").touch()


class Source:
    """Hands our draws to TextAttack, a fresh stream for each word and change."""

    def __init__(self) -> None:
        self.key: tuple[object, ...] = ()
        self.draws = Draws()

    def begin(self, change: str, word: int) -> None:
        self.draws = Draws(*self.key, change, word)

    def put_in(self) -> None:
        import textattack.transformations.word_swaps as swaps

        numbers = SimpleNamespace(randint=lambda low, high: low + self.draws.below(high - low))
        letters = SimpleNamespace(choice=lambda items: items[self.draws.below(len(items))])
        for module in vars(swaps).values():
            if getattr(module, "np", None) is not None:
                module.np = SimpleNamespace(random=numbers)
            if getattr(module, "random", None) is not None:
                module.random = letters
        swap = swaps.WordSwap
        plain = swap._get_transformations

        def one_word_at_a_time(this: Any, text: Any, indices: set[int]) -> list[Any]:
            found = []
            for index in indices:
                self.begin(NAMES.get(type(this).__name__, ""), index)
                found += plain(this, text, [index])
            return found

        swap._get_transformations = one_word_at_a_time


def wrapper(asked: list[str]) -> Any:
    """Model that records its queries."""
    import torch
    from textattack.models.wrappers import ModelWrapper

    class Model(ModelWrapper):
        def __init__(self) -> None:
            self.model = None

        def __call__(self, texts: list[str], **_: Any) -> Any:
            asked.extend(texts)
            return torch.tensor([probabilities(text) for text in texts], dtype=torch.float64)

    return Model()


def textfooler(model: Any) -> Any:
    """Their recipe, built by them from our vectors; then the constraints that cannot be had are taken out."""
    import numpy as np
    import textattack.attack_recipes.textfooler_jin_2019 as recipe
    import torch
    from textattack.shared import WordEmbedding

    words = {word: number for number, word in enumerate(WORD_VECTORS)}
    matrix = np.array(list(WORD_VECTORS.values()))
    # The nearest words are given, as in its cache: the code that would look for them ends with an error. So
    # does the one for cosines, with an array of numpy.
    nearest = (-matrix @ matrix.T).argsort(axis=1, kind="stable")
    assert (nearest[:, 0] == np.arange(len(words))).all()
    embedding = WordEmbedding(torch.tensor(matrix), words, dict(enumerate(words)), nearest)
    WordEmbedding.counterfitted_GLOVE_embedding = staticmethod(lambda: embedding)

    class LeftOut(recipe.WordEmbeddingDistance):
        """Allows everything."""

        def __init__(self, **_: Any) -> None:
            super().__init__(embedding=embedding, min_cos_sim=-2.0)

    recipe.PartOfSpeech = recipe.UniversalSentenceEncoder = LeftOut
    return recipe.TextFoolerJin2019.build(model)


def recipes(model: Any) -> dict[str, Any]:
    import textattack
    from textattack.attack_recipes import DeepWordBugGao2018, Pruthi2019, PWWSRen2019
    from textattack.constraints.pre_transformation import RepeatModification, StopwordModification
    from textattack.goal_functions import UntargetedClassification
    from textattack.search_methods import GreedyWordSwapWIR
    from textattack.transformations import WordSwapHomoglyphSwap

    constraints = [RepeatModification(), StopwordModification()]
    goal, search = UntargetedClassification(model), GreedyWordSwapWIR()
    return {
        "deepwordbug": DeepWordBugGao2018.build(model),
        "pruthi": Pruthi2019.build(model),
        "homoglyph_swaps": textattack.Attack(goal, constraints, WordSwapHomoglyphSwap(), search),
        "pwws": PWWSRen2019.build(model),
        "textfooler": textfooler(model),
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))
        import textattack

        source, asked = Source(), list[str]()
        source.put_in()
        found: dict[str, list[dict[str, Any]]] = {}
        for name, attack in recipes(wrapper(asked)).items():
            for number, (sentence, label) in enumerate(SENTENCES):
                source.key = (SEED, name, str(number))
                asked.clear()
                result = attack.attack(sentence, label)
                kind = type(result).__name__.removesuffix("AttackResult").lower()
                found.setdefault(name, []).append(
                    {
                        "status": {"successful": "succeeded"}.get(kind, kind),
                        "text": result.perturbed_text(),
                        "queries": result.num_queries,
                        "asked": list(asked),
                    }
                )
        body = {"textattack": textattack.__version__ if hasattr(textattack, "__version__") else "0.3.11"}
    VECTORS.write_text(json.dumps(body | {"recipes": found}, ensure_ascii=False, indent=1) + "\n")
    for name, rows in found.items():
        states = [row["status"] for row in rows]
        counts = {state: states.count(state) for state in sorted(set(states))}
        print(name, counts, "queries", sum(row["queries"] for row in rows), file=sys.stderr)


if __name__ == "__main__":
    main()
