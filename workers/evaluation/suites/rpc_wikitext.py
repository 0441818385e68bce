"""Perplexity of a language model on original text and on text with swapped words: RPC-Attention's table 3."""

from __future__ import annotations

from typing import Any

__all__ = ["rpc_wikitext"]

TASKS = ("language",)
PAPER = "Teo and Nguyen 2024, Unveiling the Hidden Structure of Self-Attention via Kernel PCA, table 3"
# The paper states none.
RATES = (0.02, 0.05, 0.1)


def rpc_wikitext() -> list[dict[str, Any]]:
    """Perplexity with the paper's sliding window, then with 2, 5 and 10 % of the words swapped for AAA.

    On the job's data: `wikitext` has the test part by default, and the validation part with `evaluated` =
    "valid". A pass for each word: on a processor take `perplexity` with strided windows instead.
    """
    swaps = [{"name": "word_swap", "params": {"rate": rate}} for rate in RATES]
    return [{"name": "perplexity"}, *swaps]
