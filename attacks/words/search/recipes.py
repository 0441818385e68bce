"""The recipes, composed as in TextAttack 0.3.11.

DeepWordBug: Gao et al. 2018, "Black-box Generation of Adversarial Text Sequences to Evade Deep Learning
Classifiers". Pruthi et al. 2019, "Combating Adversarial Misspellings with Robust Word Recognition".
Homoglyphs: a transformation of TextAttack without a recipe; this one searches like DeepWordBug. PWWS: Ren et
al. 2019, "Generating Natural Language Adversarial Examples through Probability Weighted Word Saliency",
without its swap of named entities, as TextAttack. TextFooler: Jin et al. 2020, "Is BERT Really Robust?", as
`TextFoolerJin2019`, but without its constraints on parts of speech and on the Universal Sentence Encoder,
which need a tagger and TensorFlow: more texts are allowed than in the published recipe, and of those that
change the prediction the one with the best score counts, not the most similar one.
"""

from __future__ import annotations

from collections.abc import Sequence

from assay.attacks.words.deleted_character import deleted_character
from assay.attacks.words.homoglyphs import homoglyphs
from assay.attacks.words.inserted_letter import inserted_letter
from assay.attacks.words.neighbouring_key import neighbouring_key
from assay.attacks.words.search.candidates import Rules
from assay.attacks.words.search.greedy import (
    deleted,
    greedy,
    greedy_by_importance,
    weighted_saliency,
    without_the_word,
)
from assay.attacks.words.search.neighbours import Neighbours, nearest_words, similar
from assay.attacks.words.search.recipe import Recipe
from assay.attacks.words.search.stop_words import ENGLISH, TEXTFOOLER
from assay.attacks.words.search.text import Text, within
from assay.attacks.words.search.word_change import WordChange
from assay.attacks.words.substituted_letter import substituted_letter
from assay.attacks.words.swapped_characters import swapped_characters


def deepwordbug(*, max_edit_distance: int = 30) -> Recipe:
    """Swapped, substituted, deleted and inserted characters, within a Levenshtein distance."""

    def near(text: Text, original: Text) -> bool:
        return within(text.text, original.text, max_edit_distance)

    changes = (swapped_characters(), substituted_letter(), deleted_character(), inserted_letter())
    rules = Rules(ENGLISH, taken=(near,))
    return Recipe("deepwordbug", changes, rules, greedy_by_importance(without_the_word))


def pruthi(*, max_words: int = 1) -> Recipe:
    """Typing errors in a few words of at least four characters; first and last characters stay."""

    def few(text: Text, original: Text) -> bool:
        pairs = zip(text.words, original.words, strict=False)
        return sum(word != other for word, other in pairs) <= max_words

    changes = tuple(
        change(every=True, keep_first=True, keep_last=True)
        for change in (swapped_characters, deleted_character, inserted_letter, neighbouring_key)
    )
    return Recipe("pruthi", changes, Rules(ENGLISH, fewest_characters=4, taken=(few,)), greedy)


def homoglyph_swaps() -> Recipe:
    """Characters that look alike, one in each word."""
    search = greedy_by_importance(without_the_word)
    return Recipe("homoglyph_swaps", (homoglyphs(),), Rules(ENGLISH), search)


def pwws(synonyms: WordChange) -> Recipe:
    """Synonyms, in the order of weighted saliency."""
    return Recipe("pwws", (synonyms,), Rules(ENGLISH), greedy_by_importance(weighted_saliency))


def textfooler(neighbours: Neighbours, *, min_similarity: float = 0.5) -> Recipe:
    """The nearest words by word vectors, in the order of the words' importance."""
    rules = Rules(TEXTFOOLER, taken=(similar(neighbours, min_similarity),))

    def ahead(sentences: Sequence[str]) -> None:
        words = {word for sentence in sentences for word in Text(sentence).words}
        neighbours.prepare(word.lower() for word in words - rules.stop_words)

    changes = (nearest_words(neighbours),)
    return Recipe("textfooler", changes, rules, greedy_by_importance(deleted), ahead)
