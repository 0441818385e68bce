"""Perplexity of a language model on text in which words have been swapped.

Teo and Nguyen, "Unveiling the hidden structure of self-attention via kernel principal component analysis",
NeurIPS 2024, appendix A.4: words of the evaluated text are replaced by "AAA". The text itself is swapped, so
that a swapped word is seen as context and has to be predicted as well. Neither the rate nor whether swapped
words count as targets is stated: the rate is a parameter, and both perplexities are measured. The unswapped
words are scored in the original text, too: they are a subset of all words, so only two perplexities of the
same words show the effect of the swap. That doubles the passes.

    perplexity = exp(sum over words of the swapped text of -log p(word | words before it) / number of words)

A model with a tokenizer of its own reads the swapped text again, so that tokens are counted in place of
words. Its tokens that stayed are tokens of words that were not swapped and became the same tokens before and
after.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple, Protocol

import numpy as np
import torch
from annotated_types import Interval
from numpy.typing import NDArray
from torch import Tensor

from assay.attacks.words.fixed_word import fixed_word
from assay.attacks.words.search.word_change import WordChange
from assay.attacks.words.search.word_swap import WordSwap
from assay.models.attention import rpc
from assay.service.contract.gallery import MAX_ITEMS, GalleryItem, GalleryText, GalleryToken
from assay.workers.data.formats.own_tokens import OneText, TokenizedDocuments, word_spans
from assay.workers.data.formats.text import LanguageSet
from assay.workers.data.formats.vocabulary import UNKNOWN
from assay.workers.evaluation.engine.gallery.candidates import safely
from assay.workers.evaluation.engine.gallery.texts import scored_token, text_item
from assay.workers.evaluation.engine.shard import Shard
from assay.workers.evaluation.engine.text.likelihood import Scores, score
from assay.workers.evaluation.perplexity import RULES as PERPLEXITY_RULES
from assay.workers.evaluation.perplexity import DocumentLosses, Perplexity, passes_of

__all__ = ["word_swap"]

TASKS = ("language",)
TABLE = "word_swap"
PAPER = rpc.PAPER
RULES = PERPLEXITY_RULES


class Words(Protocol):
    """Makes a change: one of the catalog, with the user's parameters bound."""

    def __call__(self) -> WordChange:
        """Make it."""
        ...


class SwappedText(NamedTuple):
    """A text with words swapped, T words; of a model's own tokenizer, tokens in place of words."""

    words: Tensor  # ids of the words, int64 (T,)
    swapped: NDArray[np.bool_]  # which of them were swapped, bool (T,)
    eligible: tuple[int, ...]  # number of words that could have been, by document
    starts: Sequence[int]  # offsets of the documents, and the end
    # which words of the text before are not in this one, bool (words of that text,)
    swapped_before: NDArray[np.bool_]


@dataclass(frozen=True)
class SwappedLosses(DocumentLosses):
    """One row per document, in the order of `ids`; `unknown` counts words that are unknown after the swap."""

    swapped: tuple[int, ...] = ()  # how many of the scored words were swapped
    kept_nll: tuple[float, ...] = ()  # sum of the losses of the unswapped ones
    kept_nll_before: tuple[float, ...] = ()  # the same sum in the text before the swap
    unknown_before: tuple[int, ...] = ()  # how many of the scored words were unknown before the swap
    eligible: tuple[int, ...] = ()  # how many words of the document could have been swapped
    gallery: tuple[GalleryItem, ...] | None = None

    def columns(self) -> dict[str, list[object]]:
        """The rows as JSON columns; a loss that is not finite is None."""
        sums = {"kept_nll": self.kept_nll, "kept_nll_before": self.kept_nll_before}
        return {
            **super().columns(),
            "swapped": list(self.swapped),
            **{
                name: [one if math.isfinite(one) else None for one in values] for name, values in sums.items()
            },
            "unknown_before": list(self.unknown_before),
            "eligible": list(self.eligible),
        }


@dataclass(frozen=True)
class SwappedPerplexity(Perplexity):
    """Scores documents of a text that has been swapped first."""

    rate: float  # probability of each word that may be swapped
    change: WordChange  # replacement of a swapped word

    def measure(self, shard: Shard) -> SwappedLosses:
        """Scores the documents of the shard; a batch is of windows; errors as `Perplexity.windows`."""
        text, order = shard.text, shard.order
        windows, before = self.windows(shard.image_size), text.stream()
        after = swapped_text(text, WordSwap(self.rate, self.change, shard.seed))
        old = [(max(text.starts[index], 1), text.starts[index + 1]) for index in order]
        ranges = [(max(after.starts[index], 1), after.starts[index + 1]) for index in order]
        counts = (len(windows.numbers(ranges, len(after.words))), len(windows.numbers(old, len(before))))

        def scored(words: Tensor, own: Sequence[tuple[int, int]], first: int) -> Scores:
            return score(
                shard.language_model,
                words,
                own,
                windows,
                batch_size=shard.batch_size,
                device=shard.device,
                dtype=shard.dtype,
                progress=lambda done: shard.progress((first + done) * len(order) // sum(counts)),
            )

        found, plain = scored(after.words, ranges, 0), scored(torch.from_numpy(before), old, counts[0])
        unknown, kept, stayed = after.words.numpy() == UNKNOWN, ~after.swapped, ~after.swapped_before
        passes = (passes_of(windows, ranges, len(after.words)), passes_of(windows, old, len(before)))
        nll = tuple(math.fsum(found.losses[start:stop]) for start, stop in ranges)
        return SwappedLosses(
            ids=shard.ids,
            nll=nll,
            tokens=tuple(stop - start for start, stop in ranges),
            unknown=tuple(int(unknown[start:stop].sum()) for start, stop in ranges),
            windows=tuple(map(sum, zip(*passes, strict=True))),
            nonfinite=sum(not math.isfinite(value) for value in nll),
            noted=plain.noted | found.noted | _noted(after, unknown, ranges),
            swapped=tuple(int(after.swapped[start:stop].sum()) for start, stop in ranges),
            kept_nll=tuple(math.fsum(found.losses[start:stop][kept[start:stop]]) for start, stop in ranges),
            kept_nll_before=tuple(
                math.fsum(plain.losses[start:stop][stayed[start:stop]]) for start, stop in old
            ),
            unknown_before=tuple(int((before[start:stop] == UNKNOWN).sum()) for start, stop in old),
            eligible=tuple(after.eligible[index] for index in order),
            gallery=safely(lambda: swapped_documents(shard, before, after, plain.losses, found.losses)),
        )


def swapped_documents(
    shard: Shard,
    before: NDArray[np.int32],
    after: SwappedText,
    plain: NDArray[np.float64],
    found: NDArray[np.float64],
) -> list[GalleryText]:
    """The items of a gallery: documents with a swapped word, then others, by rank.

    `before` are the text's ids, (T,); `plain` and `found` the loss of each word before and after the swap,
    NaN where not scored, (T,).
    """
    text, names = shard.text, shard.text.vocabulary.words

    def part(row: int, starts: Sequence[int]) -> slice:
        return slice(starts[shard.order[row]], starts[shard.order[row] + 1])

    def tokens(words: Sequence[int], losses: Sequence[float], flags: Sequence[bool]) -> list[GalleryToken]:
        rows = zip(words, losses, flags, strict=True)
        return [scored_token(names[word], loss, changed=flag) for word, loss, flag in rows]

    changed = {row: bool(after.swapped[part(row, after.starts)].any()) for row in shard.ranks}
    items = []
    for row in sorted(shard.ranks, key=lambda row: (not changed[row], shard.ranks[row]))[:MAX_ITEMS]:
        own, now = part(row, text.starts), part(row, after.starts)
        flags, old_flags = after.swapped[now].tolist(), after.swapped_before[own].tolist()
        item = GalleryText(
            id=shard.ids[row],
            rank=shard.ranks[row],
            succeeded=changed[row],
            clean=[],
            perturbed=[],
            words=len(flags),
        )
        old = tokens(before[own].tolist(), plain[own].tolist(), old_flags)
        items.append(text_item(item, old, tokens(after.words[now].tolist(), found[now].tolist(), flags)))
    return items


def _noted(
    after: SwappedText, unknown: NDArray[np.bool_], ranges: Sequence[tuple[int, int]]
) -> dict[str, int]:
    parts = [slice(start, stop) for start, stop in ranges]
    return {
        "swapped": sum(int(after.swapped[part].sum()) for part in parts),
        "swapped_unknown": sum(int((after.swapped & unknown)[part].sum()) for part in parts),
    }


def swapped_text(text: LanguageSet, swap: WordSwap) -> SwappedText:
    """The whole text with words swapped: a document is context of the next one, scored or not."""
    if isinstance(text, TokenizedDocuments):
        return _tokenized_anew(text, swap)
    words = torch.from_numpy(text.stream().astype(np.int64))
    swapped, eligible = np.zeros(len(words), dtype=bool), []
    for index, document in enumerate(text.ids):
        found = swap(text.words(index), document)
        part = slice(text.starts[index], text.starts[index + 1])
        swapped[part] = found.swapped.numpy()
        changed = found.swapped.nonzero().flatten()
        words[part][changed] = text.vocabulary.ids([found.words[place] for place in changed.tolist()])
        eligible.append(found.eligible)
    return SwappedText(words, swapped, tuple(eligible), text.starts, swapped)


def _tokenized_anew(text: TokenizedDocuments, swap: WordSwap) -> SwappedText:
    texts, chosen, eligible = [], [], []
    for index, (document, own) in enumerate(zip(text.ids, text.texts, strict=True)):
        found = swap(text.words(index), document)
        places = set(found.swapped.nonzero().flatten().tolist())
        parts, last = [], 0
        for place, (start, stop) in enumerate(word_spans(own)):
            parts += [own[last:start], found.words[place] if place in places else own[start:stop]]
            last = stop
        texts.append("".join([*parts, own[last:]]))
        chosen.append(places)
        eligible.append(found.eligible)
    before, after = text.whole, text.tokenized(texts)
    kept = [np.zeros(len(one.ids), dtype=bool) for one in (before, after)]
    for index, places in enumerate(chosen):
        old, new = (_words_of(one, index) for one in (before, after))
        for word in old.keys() & new.keys() - places:
            if np.array_equal(before.ids[old[word]], after.ids[new[word]]):
                kept[0][old[word]] = kept[1][new[word]] = True
    words = torch.from_numpy(after.ids.astype(np.int64))
    return SwappedText(words, ~kept[1], tuple(eligible), after.starts, ~kept[0])


def _words_of(text: OneText, index: int) -> dict[int, NDArray[np.int64]]:
    places = np.arange(text.starts[index], text.starts[index + 1])
    words, first = np.unique(text.word[places], return_index=True)
    return dict(zip(words.tolist(), np.split(places, first[1:]), strict=True))


def word_swap(
    *,
    rate: Annotated[float, "strength", Interval(ge=0, le=1)] = 0.05,
    words: Annotated[Words, "words"] = fixed_word,
    window: Literal["sliding", "strided", "blocks"] = "sliding",
    length: Annotated[int, Interval(ge=1, le=65536)] | None = None,
    stride: Annotated[int, Interval(ge=1, le=65536)] = 128,
) -> SwappedPerplexity:
    """Perplexity per word of text with swapped words, of all words and of those that stayed, also before.

    Args:
        rate: Probability of each word that may be swapped; markup and punctuation stay.
        words: What a swapped word becomes.
        window: As of `perplexity`.
        length: As of `perplexity`: words of a window; null is the model's length.
        stride: As of `perplexity`: of strided windows.
    """
    return SwappedPerplexity(window, length, stride, rate, words())
