"""The words with the nearest vectors, and the recipe's use of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from assay.attacks.words.search import neighbours as module
from assay.attacks.words.search.draws import Draws
from assay.attacks.words.search.neighbours import Neighbours, nearest_words, similar
from assay.attacks.words.search.recipes import textfooler
from assay.attacks.words.search.text import Text


def scattered(n: int, d: int) -> NDArray[np.float32]:
    return np.random.default_rng(0).normal(size=(n, d)).astype(np.float32)


def plainly(vectors: NDArray[np.float32], number: int, count: int) -> list[str]:
    """The nearest by sums without rounding, equally near ones by number."""
    unit = (vectors / np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)).astype(np.float32)
    rows = unit.astype(np.float64).tolist()
    cosines = [math.fsum(a * b for a, b in zip(row, rows[number], strict=True)) for row in rows]
    others = sorted((-cosine, other) for other, cosine in enumerate(cosines) if other != number)
    return [str(other) for _, other in others[:count]]


def test_finds_what_a_plain_search_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = scattered(300, 24)
    names = [str(number) for number in range(300)]
    monkeypatch.setattr(module, "BLOCK", 7)
    together, alone = Neighbours(names, vectors, 50), Neighbours(names, vectors, 50)
    together.prepare([*names[:40], "not there", "3"])
    for number in range(45):
        wanted = plainly(vectors, number, 50)
        assert together.of(names[number]) == alone.of(names[number]) == wanted


def test_what_is_equally_near_goes_by_the_files_order() -> None:
    # Ten vectors that all have the same cosine to the first, one that is nearer; in single precision, too,
    # sums of one and the same numbers are equal.
    vectors = np.array([[1, 0, 0], *[[1, 1, 0]] * 10, [3, 1, 0]], np.float32)
    near = Neighbours([f"w{number}" for number in range(12)], vectors, 4)
    assert near.of("w0") == ["w11", "w1", "w2", "w3"]
    assert near.of("w5") == ["w1", "w2", "w3", "w4"]


def test_differences_below_single_precision_count() -> None:
    """Cosines that a product in single precision gives in another order, or as equal."""
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(400, 300)).astype(np.float32)
    vectors[1:] = vectors[:1] + 1e-3 * vectors[1:]
    near = Neighbours([str(number) for number in range(400)], vectors, 50)
    assert near.of("0") == plainly(vectors, 0, 50)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    rough = np.argsort(-(unit[1:] @ unit[0]), kind="stable")[:50] + 1
    assert near.of("0") != [str(number) for number in rough]


def test_knows_no_word_without_a_vector_and_takes_all_of_few() -> None:
    near = Neighbours(["a", "b", "c"], np.array([[1, 0], [0, 2], [1, 1]], np.float32), 50)
    assert near.of("a") == ["c", "b"]
    assert near.of("d") == []
    assert near.cosine("a", "d") is None
    assert near.cosine("a", "c") == pytest.approx(math.sqrt(0.5), abs=1e-7)
    assert Neighbours(["a"], np.ones((1, 2), np.float32), 50).of("a") == []


def few() -> Neighbours:
    words = ["film", "movie", "NATO", "u.s", "dog", "day"]
    vectors = [[1, 0], [1, 0.1], [1, 0.2], [1, 0.3], [0, 1], [0.1, 1]]
    return Neighbours(words, np.array(vectors, np.float32), 3)


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("film", ["movie", "nato", "u.s"]),
        ("Film", ["Movie", "Nato", "U.s"]),
        ("FILM", ["MOVIE", "NATO", "U.S"]),
        ("fILM", ["movie", "NATO", "u.s"]),
        ("films", []),
    ],
)
def test_is_written_as_the_word_was(word: str, found: list[str]) -> None:
    assert nearest_words(few()).of(word, Draws()) == found


def test_allows_what_is_near_and_what_it_does_not_know() -> None:
    near = similar(few(), 0.5)
    before = Text("A Film of dog days")
    allowed = {new: near(before.replace(1, new), before) for new in ("Movie", "dog", "day", "unheard", "")}
    assert allowed == {"Movie": True, "dog": False, "day": False, "unheard": True, "": True}


def test_compares_several_words_with_those_at_their_places() -> None:
    near = similar(few(), 0.5)
    assert near(Text("film dog").replace(0, "movie day"), Text("film dog"))
    assert not near(Text("film dog").replace(0, "movie nato film"), Text("film dog"))
    assert not near(Text("film film").replace(0, "movie day"), Text("film film"))


def test_words_that_stay_are_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    near, asked = few(), list[str]()
    monkeypatch.setattr(near, "prepare", asked.extend)
    recipe = textfooler(near)
    assert recipe.ahead is not None
    recipe.ahead(["The Film and the dog", "whereupon a dog"])
    assert sorted(asked) == ["dog", "film", "the"]
    assert len(recipe.rules.stop_words) == 266
