"""Classifiers of sentences in plain Python, the same to the last bit in every environment."""

from __future__ import annotations

import math
from hashlib import blake2b
from itertools import pairwise


def weight(*parts: object) -> float:
    """A number in [-1, 1) that only these decide."""
    digest = blake2b(repr(parts).encode(), digest_size=6).digest()
    return int.from_bytes(digest, "big") / 2**47 - 1


def probabilities(text: str, classes: int = 2) -> list[float]:
    """A softmax over sums of weights of the words, split at spaces, and of pairs of neighbours."""
    words = text.split()
    pairs = list(pairwise(words))
    logits = [
        0.5 * math.fsum(weight(word, label) for word in words)
        + 0.2 * math.fsum(weight(*pair, label) for pair in pairs)
        for label in range(classes)
    ]
    powers = [math.exp(logit - max(logits)) for logit in logits]
    return [power / math.fsum(powers) for power in powers]
