"""Philox against the vectors of Random123, against NumPy's, and the device's form against the CPU's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from assay.attacks import philox
from tests.support.emulated_device.device import emulated_device

MOST = 2**64 - 1
# `kat_vectors` of Random123 1.14: counter, key, block.
PUBLISHED = [
    ((0, 0, 0, 0), (0, 0), "16554d9eca36314c db20fe9d672d0fdc d7e772cee186176b 7e68b68aec7ba23b"),
    (
        (MOST, MOST, MOST, MOST),
        (MOST, MOST),
        "87b092c3013fe90b 438c3c67be8d0224 9cc7d7c69cd777b6 a09caebf594f0ba0",
    ),
    (
        (0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0, 0x082EFA98EC4E6C89),
        (0x452821E638D01377, 0xBE5466CF34E90C6C),
        "a528f45403e61d95 38c72dbd566e9788 a5a1610e72fd18b5 57bd43b5e52b7fe6",
    ),
]
CPU = torch.device("cpu")
KEYS = np.array([(0, 0), (1, 2**63), (MOST, 7), (2**62, 2**63 + 5)], dtype=np.uint64)


def signed(*words: int) -> Tensor:
    return torch.from_numpy(np.array(words, dtype=np.uint64).view(np.int64))


@pytest.mark.parametrize(("counter", "key", "block"), PUBLISHED)
def test_a_block_is_the_published_block(
    counter: tuple[int, int, int, int], key: tuple[int, int], block: str
) -> None:
    expected = signed(*(int(word, 16) for word in block.split()))
    one, two, three, four = (signed(word)[None] for word in counter)
    made = philox.permuted((one, two, three, four), philox.round_keys(np.array([key], dtype=np.uint64)))
    assert torch.equal(torch.cat(made).flatten(), expected)


def test_the_words_of_a_key_are_those_of_numpy() -> None:
    for key in KEYS:
        theirs = np.random.Philox(key=key).random_raw(101).view(np.int64)
        for made in (philox.on_cpu(key[None], 101), philox.on_device(key[None], 101, CPU)):
            assert torch.equal(made, torch.from_numpy(theirs)[None])


@pytest.mark.sampled
@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 1001])
@pytest.mark.parametrize("at_once", [1, 7, philox.BLOCKS_AT_ONCE])
def test_the_device_makes_the_words_of_the_cpu(
    count: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(philox, "BLOCKS_AT_ONCE", at_once)
    expected = philox.on_cpu(KEYS, count)
    assert expected.shape == (len(KEYS), count)
    assert torch.equal(philox.on_device(KEYS, count, CPU), expected)


def test_an_accelerator_makes_them_without_a_wait() -> None:
    with emulated_device() as device:
        philox.on_device(KEYS, 5, device.device)  # the constants are there from then on
        device.forget_counts()
        made = philox.on_device(KEYS, 100, device.device)
        assert not device.waits
        assert not device.uploads
        assert torch.equal(made.cpu(), philox.on_cpu(KEYS, 100))


def test_products_carry_over_every_boundary() -> None:
    """The upper halves of products of words at the edges of 32 bits, against Python's integers."""
    edges = [0, 1, 2**32 - 1, 2**32, 2**32 + 1, 2**63 - 1, 2**63, MOST - 2**32, MOST - 1, MOST]
    for words in zip(edges, reversed(edges), strict=True):
        counter = (words[0], 5, words[1], 9)
        parts = tuple(signed(word)[None] for word in counter)
        rounds = philox.round_keys(np.array([(3, 11)], dtype=np.uint64))[:1]  # one round
        first, second, third, fourth = philox.permuted(parts, rounds)  # type: ignore[arg-type]
        one, two = (word * by for word, by in zip(words, philox.MULTIPLIERS, strict=True))
        expected = ((two >> 64) ^ 5 ^ 3, two & MOST, (one >> 64) ^ 9 ^ 11, one & MOST)
        assert torch.equal(torch.stack([first, second, third, fourth]).flatten(), signed(*expected))
