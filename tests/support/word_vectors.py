"""Word vectors that are made up, in the file that counter-fitted vectors come in."""

from __future__ import annotations

import math
from pathlib import Path

from tests.support.word_models import weight

DIMENSIONS = 12
# Words of one sense are near each other; the first sense has more than the 50 that are looked at.
SENSES = (
    "film movie picture " + " ".join(f"film{number}" for number in range(70)),
    "good great decent fine well-done ok solid warm",
    "bad awful terrible worse dire",
    "story tale narrative plot u.s",
    "funny comical amusing odd strange",
    "director manager chief boss actor thespian actor's",
    "slow slowly dull sluggish tardy noisy",
    "run ran race go went fell fall",
    "watch watches see view scenes scene window",
    "dog dogs hound mice mouse children kid kid's city night",
    "big large old dark quiet",
    "love loved hated hate amused heart",
    "made make penned wrote told teacher",
    "thing idea ideas thought moment instant minute minutes time",
    "Nirvana NATO 2 15 tonight year town",
)


def vector(word: str, sense: int) -> list[float]:
    """Unit vectors: a direction of the sense, and one of the word."""
    parts = [weight("sense", sense, axis) + 0.75 * weight(word, axis) for axis in range(DIMENSIONS)]
    length = math.sqrt(math.fsum(part * part for part in parts))
    return [part / length for part in parts]


VECTORS = {word: vector(word, sense) for sense, words in enumerate(SENSES) for word in words.split()}


def write_vectors(folder: Path) -> Path:
    """Write the file; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = (f"{word} {' '.join(map(repr, numbers))}\n" for word, numbers in VECTORS.items())
    (folder / "counter-fitted-vectors.txt").write_text("".join(lines), "utf-8")
    return folder
