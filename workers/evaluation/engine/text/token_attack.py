"""Runs a gradient-guided search against a text classifier, many texts at once.

Gradients and candidates of texts of like length share passes (`text_reader.passes`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.attacks.expectation import SINGLE, Expectation
from assay.attacks.kernel import frozen
from assay.attacks.sending import sent
from assay.attacks.words.search.draws import Draws
from assay.attacks.words.search.gradient_swaps import Found, GuidedSearch, Heard, Search, Victim
from assay.attacks.words.search.stop_words import ENGLISH
from assay.attacks.words.search.text import Text
from assay.models.layers.token_model import word_vectors
from assay.workers.data.formats.text import SentenceSet, padded
from assay.workers.data.formats.vocabulary import PAD, UNKNOWN, Vocabulary
from assay.workers.evaluation.engine.attack.searches import Asked, by_search, together
from assay.workers.evaluation.engine.forward import Passes, Result
from assay.workers.evaluation.engine.gallery.candidates import safely
from assay.workers.evaluation.engine.gallery.texts import attacked_texts
from assay.workers.evaluation.engine.shard import Shard
from assay.workers.evaluation.engine.text.attack import JudgedText, expected_rows, judged, reader_of
from assay.workers.evaluation.engine.text.outcomes import TextOutcomes, TextRow
from assay.workers.evaluation.engine.text.reader import BUSY, passes, reading

# Of attacks by token gradients.
OF_WHOLE_WORDS = (
    "model.own_tokenizer != True",
    "this attack swaps whole words by the vectors of a vocabulary, and the tokens of a model with a tokenizer"
    " of its own are pieces of words; textfooler, pwws, deepwordbug, pruthi and homoglyph_swaps change its"
    " texts, and word_swap those of a language model",
)


@dataclass(frozen=True)
class TokenAttack:
    """A search, ready to run: the evaluation of a gradient-guided attack on text."""

    name: str  # of the component; random draws are keyed by it
    search: Search
    max_share: float  # share of the words that may be swapped; one word always may
    expectation: Expectation = SINGLE  # passes at each text; as of `TextAttack`
    # Of the model's vectors of a word and of the word that it becomes; None for no limit
    min_cosine: float | None = None

    def measure(self, shard: Shard) -> TextOutcomes:
        """Attacks every text of the shard; a ValueError without token gradients or words."""
        data, longest = shard.sentences, shard.image_size
        sentences = [data.sentences[index] for index in shard.order]
        settled: dict[int, TextRow] = {}
        with frozen(shard.classifier):
            model = _Model(shard, self.expectation.passes)
            searches = self._searches(model, shard, sentences, settled)
            for ended in together(searches, shard.batch_size, model.slopes, model.heard):
                settled |= self._rows(model, ended)
                shard.progress(len(settled))
            shard.progress(len(settled))
            rows = [settled[number] for number in range(len(sentences))]
            if self.expectation.expected:
                with torch.no_grad():
                    judging = (self.expectation.draws, shard.seed, shard.device, shard.batch_size)
                    rows = list(expected_rows(model.reader, rows, *judging))
        return TextOutcomes(
            tuple(rows),
            notes={**reading(sentences, data.encode, longest), **model.reader.limit.noted()},
            keep_adversarial=shard.save_adversarial,
            gallery=safely(lambda: attacked_texts(rows, shard.ranks)),
        )

    def _searches(
        self, model: _Model, shard: Shard, sentences: Sequence[str], settled: dict[int, TextRow]
    ) -> Iterator[tuple[_Attacked, GuidedSearch]]:
        labels = shard.labels.tolist()
        for first in range(0, len(sentences), shard.batch_size):
            part = slice(first, first + shard.batch_size)
            judging = enumerate(model.judge_texts(sentences[part], labels[part]), start=first)
            for number, clean in judging:
                sentence, label, example = sentences[number], labels[number], shard.ids[number]
                row = _unattacked(example, label, sentence, clean)
                row = replace(row, passes=self.expectation.passes)
                if clean.answer.broken:
                    settled[number] = row
                    continue
                most = max(1, int(self.max_share * row.words))
                victim = model.victim(sentence, most, clean.loss, self.min_cosine)
                draws = Draws(shard.seed, self.name, example)
                yield _Attacked(number, row, victim), self.search(victim, draws)

    def _rows(self, model: _Model, ended: Sequence[tuple[_Attacked, Found]]) -> dict[int, TextRow]:
        passes, rows = self.expectation.passes, {}
        for text, found in ended:
            rows[text.number] = replace(
                text.row,
                queries=1 + found.queries,
                passes=passes * (1 + found.queries + found.gradients),
                backward=passes * found.gradients,
            )
        changed = [one for one in ended if not torch.equal(one[1].tokens, one[0].victim.tokens)]
        written = [
            model.written(text.row.original, text.victim.tokens, found.tokens) for text, found in changed
        ]
        last = model.judge_texts(written, [text.row.label for text, _ in changed])
        for (text, _), words, judgement in zip(changed, written, last, strict=True):
            row = rows[text.number]
            rows[text.number] = replace(
                row,
                prediction=judgement.prediction,
                status="succeeded" if judgement.answer.broken else "failed",
                loss=judgement.loss,
                passes=row.passes + passes,
                changed=Text(words).changed(Text(row.original)),
                nonfinite=judgement.nonfinite,
                text=words,
                confidence=judgement.confidence,
            )
        return rows


class _Attacked(NamedTuple):
    number: int  # its row in the shard
    row: TextRow  # its outcome without an attack
    victim: Victim


class _Model:
    def __init__(self, shard: Shard, passes: int) -> None:
        autocast = shard.dtype == "bfloat16"
        self.data = shard.sentences
        self.layer = word_vectors(shard.classifier)
        self.allowed = swappable(self.data).to(shard.device)
        self.reader = reader_of(shard)
        self._classifier = shard.classifier
        self._device = shard.device
        self._size = shard.batch_size
        self._drawn = range(passes)
        self._passes = Passes(shard.classifier, shard.device, self.reader.limit)
        self._precision = torch.autocast(shard.device.type, torch.bfloat16, enabled=autocast)

    def judge_texts(self, texts: Sequence[str], labels: Sequence[int]) -> list[JudgedText]:
        """The model's answers to texts."""
        if not texts:
            return []
        with torch.no_grad():
            drawn = torch.stack([self.reader(texts) for _ in self._drawn])
            return judged(drawn, torch.tensor(labels))

    def victim(self, sentence: str, most: int, loss: float, min_cosine: float | None) -> Victim:
        """A text as a search sees it."""
        (tokens,) = self.reader.tokens([sentence])
        return Victim(
            tokens=tokens,
            free=[place for place in swapped_places(sentence) if place < len(tokens)],
            allowed=self.allowed,
            vectors=self.layer.weight.detach(),
            most=most,
            loss=loss,
            min_cosine=min_cosine,
        )

    def written(self, sentence: str, before: Tensor, after: Tensor) -> str:
        """The text with the words of the swapped tokens."""
        words, names = sentence.split(), self.data.vocabulary.words
        for place in (before != after).nonzero()[:, 0].tolist():
            words[place] = names[int(after[place])]
        return " ".join(words)

    def heard(self, asked: Asked[_Attacked]) -> list[list[Heard]]:
        """The answers to the texts of each search."""
        with torch.no_grad(), self._precision:
            found = self._by_pass(asked, self._answers)
        return by_search(asked, found)

    def slopes(self, asked: Asked[_Attacked]) -> list[Tensor]:
        """The gradients by the vectors of the texts of each search, (B, N, C)."""
        rows = by_search(asked, self._by_pass(asked, self._slopes))
        return [
            torch.stack([row[: texts.shape[1]] for row in own])
            for own, (_, texts) in zip(rows, asked, strict=True)
        ]

    def _by_pass(
        self, asked: Asked[_Attacked], work: Callable[[Tensor, Tensor], Iterable[Result]]
    ) -> list[Result]:
        texts = [text for _, own in asked for text in own]
        labels = torch.tensor([one.row.label for one, own in asked for _ in own])
        found: dict[int, Result] = {}
        for places in passes([len(text) for text in texts], self._size, BUSY.get(self._device.type, 0)):
            tokens = sent(padded([texts[place] for place in places]), self._device)

            def part(rows: Tensor, tokens: Tensor = tokens, truth: Tensor = labels[places]) -> list[Result]:
                own = slice(int(rows[0]), int(rows[-1]) + 1)
                return list(work(tokens[own], truth[own]))

            parts = self._passes.in_parts(torch.arange(len(places)), part)
            found |= zip(places, chain.from_iterable(parts), strict=True)
        return [found[place] for place in range(len(texts))]

    def _answers(self, tokens: Tensor, labels: Tensor) -> list[Heard]:
        drawn = torch.stack([self._classifier(tokens) for _ in self._drawn])
        found = judged(drawn, labels)
        return [Heard(torch.inf if one.nonfinite else one.loss, one.answer.broken) for one in found]

    def _slopes(self, tokens: Tensor, labels: Tensor) -> Tensor:
        """Gradients of the cross-entropy by the vectors of texts (B, N), mean of all passes, (B, N, C)."""
        total = self._slope(tokens, labels)
        for _ in self._drawn[1:]:
            total = total + self._slope(tokens, labels)
        return total / len(self._drawn)

    def _slope(self, tokens: Tensor, labels: Tensor) -> Tensor:
        truth = sent(labels, tokens)

        def loss() -> Tensor:
            with self._precision:
                logits = self._classifier(tokens)
            return functional.cross_entropy(logits.float(), truth, reduction="sum")

        return gradient_by_vectors(self.layer, loss)


def gradient_by_vectors(layer: nn.Module, loss: Callable[[], Tensor]) -> Tensor:
    """Gradient of a loss by a layer's word vectors, (B, N, C); ValueError unless they are read once."""
    leaves: list[Tensor] = []

    def hold(_layer: nn.Module, _tokens: tuple[Tensor, ...], vectors: Tensor) -> Tensor:
        leaves.append(vectors.detach().requires_grad_())
        return leaves[-1]

    hook = layer.register_forward_hook(hold)
    try:
        with torch.enable_grad():
            value = loss()
    finally:
        hook.remove()
    if len(leaves) != 1:
        raise ValueError(f"the model reads its word vectors {len(leaves)} times in a pass, not once")
    (gradient,) = torch.autograd.grad(value, leaves)
    return gradient


def swappable(data: SentenceSet) -> Tensor:
    """Ids of the words that a word may become: letters only, no stop words, and read back as themselves.

    Words of a `Vocabulary` are whole: a word of letters is one token. Where the data read a text in another
    way than the vocabulary has its words, in lower case for example, a word that does not survive is left
    out. Tokens that are not words are a ValueError.
    """
    ids = words_of_letters(data.vocabulary).nonzero().flatten()
    read = data.encode(" ".join(data.vocabulary.words[number] for number in ids.tolist()))
    if len(read) != len(ids):
        raise ValueError(f"the data {data.name!r} cut words into several tokens: swaps are of whole words")
    return ids[read == ids]


def words_of_letters(vocabulary: Vocabulary) -> Tensor:
    """Which words may be swapped, and be what others become, bool (V,): letters only, no stop words."""
    return torch.tensor(
        [
            number not in (PAD, UNKNOWN) and word.isalpha() and word.lower() not in ENGLISH
            for number, word in enumerate(vocabulary.words)
        ]
    )


def swapped_places(sentence: str) -> list[int]:
    """Places of the words of a text that may be swapped: no punctuation, no markup, no stop words."""
    return [
        place
        for place, word in enumerate(sentence.split())
        if Text(word).words == [word] and word.lower() not in ENGLISH
    ]


def _unattacked(example: str, label: int, sentence: str, clean: JudgedText) -> TextRow:
    return TextRow(
        id=example,
        label=label,
        prediction=clean.prediction,
        status="skipped" if clean.answer.broken else "failed",
        loss=clean.loss,
        queries=1,
        passes=1,
        words=len(Text(sentence).words),
        changed=0,
        nonfinite=clean.nonfinite,
        original=sentence,
        text=sentence,
        clean_confidence=clean.confidence,
        confidence=clean.confidence,
    )
