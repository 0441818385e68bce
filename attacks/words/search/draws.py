"""Random draws that belong to one word of one example.

Each stream is keyed by (seed, attack, example id, change, word): whatever else is drawn, in whatever batch
and order, a word gets the same draws. The numbers are hashes, so no library's generator decides them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


class Draws:
    """One stream of draws.

    Args:
        key: What it is keyed by.
    """

    def __init__(self, *key: object) -> None:
        # Lengths keep ("a", "bc") and ("ab", "c") apart.
        text = "".join(f"{len(str(part))}:{part}" for part in key)
        self._key = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=32).digest()
        self._count = 0

    def below(self, n: int) -> int:
        """The next whole number in [0, n); n up to 2**32 are drawn evenly to one part in 2**32."""
        digest = blake2b(self._count.to_bytes(8, "little"), key=self._key, digest_size=8).digest()
        self._count += 1
        return int.from_bytes(digest, "little") % n

    def one_of(self, items: Sequence[str]) -> str:
        """The next of some items, each as likely as the others."""
        return items[self.below(len(items))]


@dataclass(frozen=True)
class Stream:
    """The streams of one example.

    Attributes:
        seed: the job's seed.
        attack: name of the attack.
        example: id of the example.
    """

    seed: int
    attack: str
    example: str

    def of(self, change: str, word: int) -> Draws:
        """The stream of one change at one word, from its beginning."""
        return Draws(self.seed, self.attack, self.example, change, word)
