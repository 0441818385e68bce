"""Perplexity on text with swapped words, of models whose losses are known."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from assay.attacks.words.fixed_word import fixed_word
from assay.attacks.words.search.word_swap import WordSwap
from assay.models.layers.token_model import TokenModel
from assay.service.metrics.tables.word_swap import word_swap_metrics
from assay.workers.data.formats.text import Documents
from assay.workers.data.formats.vocabulary import Vocabulary
from assay.workers.evaluation.perplexity import perplexity
from assay.workers.evaluation.word_swap import SwappedLosses, swapped_text, word_swap
from tests.support.shards import shard

WORDS = ["<pad>", "<unk>", "AAA", "<eos>", "red", "green", "blue"]
TEXT = [["red", "green", ",", "<eos>", "blue"] * 8, ["green", "<unk>", "red", "grey", "<eos>"] * 6]
SEED = 1


class Copying(nn.Module):
    """Thinks that the next word is most likely the present one; unknown words are less likely everywhere."""

    sequence_length = 8

    def __init__(self, words: int) -> None:
        super().__init__()
        table = 2.0 * torch.eye(words)
        table[:, 1] -= 1
        self.table = nn.Parameter(table)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.table[tokens]


def documents(words: list[str]) -> Documents:
    return Documents(
        name="text", ids=["a", "b"], read=lambda index: list(TEXT[index]), vocabulary=Vocabulary(words)
    )


def run(rate: float, words: list[str] = WORDS, order: tuple[int, ...] = (0, 1)) -> SwappedLosses:
    text = documents(words)
    model = TokenModel(Copying(len(words)))
    return word_swap(rate=rate).measure(shard(model, text, order, seed=SEED))


def by_hand(rate: float, words: list[str]) -> list[tuple[float, bool]]:
    """(loss, swapped) of every target, from the swapped text itself."""
    swap, vocabulary, table = WordSwap(rate, fixed_word(), SEED), Vocabulary(words), Copying(len(words)).table
    found = [swap(document, name) for document, name in zip(TEXT, "ab", strict=True)]
    ids = vocabulary.ids([word for one in found for word in one.words])
    swapped = torch.cat([one.swapped for one in found]).tolist()
    losses = -table.double().log_softmax(1)[ids[:-1], ids[1:]]
    return list(zip(losses.tolist(), swapped[1:], strict=True))


def test_without_a_swap_it_is_the_perplexity() -> None:
    plain = perplexity().measure(shard(TokenModel(Copying(len(WORDS))), documents(WORDS)))
    found = run(0.0)
    assert found.nll == found.kept_nll == found.kept_nll_before == plain.nll
    assert found.windows == tuple(2 * count for count in plain.windows)
    assert found.swapped == (0, 0)
    assert found.unknown == found.unknown_before == plain.unknown


@pytest.mark.parametrize(
    "words", [WORDS, [word for word in WORDS if word != "AAA"]], ids=["known", "unknown"]
)
def test_swapped_words_are_context_and_targets(words: list[str]) -> None:
    found, wanted = run(0.4, words), by_hand(0.4, words)
    assert math.fsum(found.nll) == pytest.approx(math.fsum(loss for loss, _ in wanted), rel=1e-6)
    kept = [loss for loss, swapped in wanted if not swapped]
    assert math.fsum(found.kept_nll) == pytest.approx(math.fsum(kept), rel=1e-6)
    assert sum(found.tokens) - sum(found.swapped) == len(kept)
    assert 0 < sum(found.swapped) < len(wanted)


def test_says_what_the_vocabulary_makes_of_the_swapped_words() -> None:
    known, unknown = run(0.4), run(0.4, [word for word in WORDS if word != "AAA"])
    assert known.noted["swapped_unknown"] == 0
    assert unknown.noted["swapped_unknown"] == unknown.noted["swapped"] == sum(unknown.swapped)
    # "grey" and the comma are not in the vocabulary, and "grey" may be swapped for a word that is.
    assert sum(known.unknown) < sum(known.unknown_before) <= sum(unknown.unknown)
    # Commas and markup stay; the comma that begins nothing is unknown, and not eligible.
    assert known.eligible == (3 * 8, 3 * 6)


def test_a_document_is_scored_the_same_in_any_shard() -> None:
    whole = run(0.4)
    for order in ((0,), (1,), (1, 0)):
        part = run(0.4, order=order)
        assert part.nll == tuple(whole.nll[index] for index in order)
        assert part.kept_nll == tuple(whole.kept_nll[index] for index in order)


def test_markup_and_documents_keep_their_places() -> None:
    text = documents(WORDS)
    found = swapped_text(text, WordSwap(1.0, fixed_word(), SEED))
    names = [WORDS[number] for number in found.words.tolist()]
    assert names[:5] == ["AAA", "AAA", "<unk>", "<eos>", "AAA"]
    assert names[40:45] == ["AAA", "<unk>", "AAA", "AAA", "<eos>"]


def test_metrics_are_over_all_words_and_over_those_that_stayed() -> None:
    found = run(0.4)
    metrics = word_swap_metrics(found.columns())
    wanted = by_hand(0.4, WORDS)
    n = len(wanted)
    assert metrics["perplexity"].value == pytest.approx(
        math.exp(sum(loss for loss, _ in wanted) / n), rel=1e-6
    )
    kept = [loss for loss, swapped in wanted if not swapped]
    assert metrics["perplexity_unswapped"].value == pytest.approx(math.exp(sum(kept) / len(kept)), rel=1e-6)
    ids = Vocabulary(WORDS).ids([word for document in TEXT for word in document])
    before = -Copying(len(WORDS)).table.double().log_softmax(1)[ids[:-1], ids[1:]]
    same = [loss for loss, (_, swapped) in zip(before.tolist(), wanted, strict=True) if not swapped]
    assert metrics["perplexity_unswapped_before"].value == pytest.approx(
        math.exp(sum(same) / len(same)), rel=1e-6
    )
    assert metrics["swapped_words"].value == (n - len(kept)) / n
    assert metrics["swapped_words"].n == n
