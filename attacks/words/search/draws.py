"""Random draws keyed by a word of an example.

Each stream is keyed by a hash of (seed, attack, example id, change, word): a word gets the same draws in any
batch and order, by no library's generator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


class Draws:
    """One stream of draws."""

    def __init__(self, *key: object) -> None:
        # Lengths keep ("a", "bc") and ("ab", "c") apart.
        text = "".join(f"{len(str(part))}:{part}" for part in key)
        self._key = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=32).digest()
        self._count = 0

    def below(self, n: int) -> int:
        """Next integer in [0, n), n up to 2**32; uniform to one part in 2**32."""
        digest = blake2b(self._count.to_bytes(8, "little"), key=self._key, digest_size=8).digest()
        self._count += 1
        return int.from_bytes(digest, "little") % n

    def one_of(self, items: Sequence[str]) -> str:
        """Next item, drawn uniformly."""
        return items[self.below(len(items))]


@dataclass(frozen=True)
class Stream:
    """Streams of an example."""

    seed: int
    attack: str
    example: str

    def of(self, change: str, word: int) -> Draws:
        """Stream of a change at one word, from its start."""
        return Draws(self.seed, self.attack, self.example, change, word)
