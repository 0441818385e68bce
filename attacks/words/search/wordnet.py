"""WordNet reader: synonyms of a word.

Fellbaum 1998, "WordNet: An Electronic Lexical Database". The files are from WordNet 3.0 and 3.1 (`index.*`,
`data.*`, `*.exc` for noun, verb, adj and adv), in the format of wndb(5WN); morphy(7WN) reduces an inflected
form to an entry.
"""

from __future__ import annotations

import functools
from pathlib import Path

from assay.attacks.words.search.draws import Draws
from assay.attacks.words.search.text import spans
from assay.attacks.words.search.word_change import WordChange

PARTS = ("noun", "verb", "adj", "adv")
FILES = tuple(f"{kind}.{part}" for part in PARTS for kind in ("index", "data")) + tuple(
    f"{part}.exc" for part in PARTS
)
# Inflectional ending to its replacement in an entry.
ENDINGS: dict[str, tuple[tuple[str, str], ...]] = {
    "noun": (
        ("s", ""),
        ("ses", "s"),
        ("ves", "f"),
        ("xes", "x"),
        ("zes", "z"),
        ("ches", "ch"),
        ("shes", "sh"),
        ("men", "man"),
        ("ies", "y"),
    ),
    "verb": (
        ("s", ""),
        ("ies", "y"),
        ("es", "e"),
        ("es", ""),
        ("ed", "e"),
        ("ed", ""),
        ("ing", "e"),
        ("ing", ""),
    ),
    "adj": (("er", ""), ("est", ""), ("er", "e"), ("est", "e")),
    "adv": (),
}
# Syntactic marker of an adjective: "galore(ip)" only follows its noun.
MARKS = ("(a)", "(p)", "(ip)")


def missing_files(folder: Path) -> list[str]:
    """WordNet files missing in a folder."""
    return [name for name in FILES if not (folder / name).is_file()]


class WordNet:
    """WordNet dictionary of a folder. Raises OSError; ValueError: names a file that is not WordNet's."""

    def __init__(self, folder: Path) -> None:
        self._index = {part: _index(folder / f"index.{part}") for part in PARTS}
        self._forms = {part: _exceptions(folder / f"{part}.exc") for part in PARTS}
        self._data = {part: (folder / f"data.{part}").read_bytes() for part in PARTS}
        self._folder = folder
        self._synonyms = functools.lru_cache(maxsize=2**16)(self._find)

    def synonyms(self, word: str) -> tuple[str, ...]:
        """All words of all synonym sets of a word, for any part of speech, in alphabetical order.

        The word may be inflected, in any case. Phrases have underscores between their words.
        """
        return self._synonyms(word.lower())

    def _find(self, word: str) -> tuple[str, ...]:
        found: set[str] = set()
        for part in PARTS:
            for form in self._entries(word, part):
                for offset in self._index[part][form]:
                    found.update(self._words(part, offset))
        return tuple(sorted(found))

    def _entries(self, word: str, part: str) -> list[str]:
        """Entries that a form may belong to: an ending is stripped once, as in NLTK."""
        known = self._index[part]
        irregular = self._forms[part].get(word)
        forms = _shortened(word, part) if irregular is None else irregular
        return [form for form in dict.fromkeys([word, *forms]) if form in known]

    def _words(self, part: str, offset: int) -> list[str]:
        data = self._data[part]
        fields = data[offset : data.find(b"\n", offset)].decode("utf-8").split(" ")
        if not fields[0].isdigit() or int(fields[0]) != offset:
            raise ValueError(f"{self._folder / f'data.{part}'} has no synonym set at byte {offset}")
        count = int(fields[3], 16)
        return [_unmarked(word) for word in fields[4 : 4 + 2 * count : 2]]


def _shortened(form: str, part: str) -> list[str]:
    return [
        form[: len(form) - len(ending)] + instead
        for ending, instead in ENDINGS[part]
        if form.endswith(ending)
    ]


def _unmarked(word: str) -> str:
    for mark in MARKS:
        word = word.removesuffix(mark)
    return word


def _index(path: Path) -> dict[str, list[int]]:
    found = {}
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith(" "):  # the licence
                continue
            fields = line.split()
            count = int(fields[2])
            found[fields[0]] = [int(offset) for offset in fields[-count:]]
    except (ValueError, IndexError) as error:
        raise ValueError(f"{path} is not an index of WordNet: {error}") from error
    return found


def _exceptions(path: Path) -> dict[str, list[str]]:
    lines = (line.split() for line in path.read_text(encoding="utf-8").splitlines())
    return {fields[0]: fields[1:] for fields in lines if fields}


def synonyms(folder: Path) -> WordChange:
    """The synonyms of a word, in every sense and part of speech; phrases are left out.

    Ren et al. 2019, "Generating Natural Language Adversarial Examples through Probability Weighted Word
    Saliency", section 3.2.
    """
    wordnet = _read(folder)

    def candidates(word: str, _draws: Draws) -> list[str]:
        return [other for other in wordnet.synonyms(word) if "_" not in other and len(spans(other)) == 1]

    return WordChange("synonyms", candidates)


@functools.lru_cache(maxsize=1)
def _read(folder: Path) -> WordNet:
    return WordNet(folder)
