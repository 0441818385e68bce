"""Runs a gradient-guided search against a text classifier, one text after another.

The candidates of a text share batches; they have one length, so that there is no padding. What counts is the
text, not its tokens: the text found is read anew, like any other, and the model's answer to it decides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.attacks.expectation import SINGLE, Expectation
from assay.attacks.kernel import frozen
from assay.attacks.words.search.draws import Draws
from assay.attacks.words.search.gradient_swaps import Heard, Search, Victim
from assay.attacks.words.search.stop_words import ENGLISH
from assay.attacks.words.search.text import Text
from assay.models.layers.token_model import word_vectors
from assay.workers.data.formats.text import SentenceSet
from assay.workers.data.formats.vocabulary import PAD, UNKNOWN, Vocabulary
from assay.workers.evaluation.engine.candidates import safely
from assay.workers.evaluation.engine.forward import Passes
from assay.workers.evaluation.engine.gallery_texts import attacked_texts
from assay.workers.evaluation.engine.shard import Shard
from assay.workers.evaluation.engine.text import Status, TextOutcomes, TextRow
from assay.workers.evaluation.engine.text_attack import JudgedText, expected_rows, judged
from assay.workers.evaluation.engine.text_reader import Reader, reading

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
        rows: list[TextRow] = []
        with frozen(shard.classifier):
            model = _Model(shard, self.expectation.passes)
            for sentence, label, example in zip(sentences, shard.labels.tolist(), shard.ids, strict=True):
                draws = Draws(shard.seed, self.name, example)
                rows.append(self._row(model, sentence, label, example, draws))
                shard.progress(len(rows))
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

    def _row(self, model: _Model, sentence: str, label: int, example: str, draws: Draws) -> TextRow:
        clean = model.judge_text(sentence, label)
        row = replace(_unattacked(example, label, sentence, clean), passes=self.expectation.passes)
        if clean.answer.broken:
            return row
        most = max(1, int(self.max_share * row.words))
        victim = replace(model.victim(sentence, label, most, clean.loss), min_cosine=self.min_cosine)
        found = self.search(victim, draws)
        passes = self.expectation.passes
        row = replace(
            row,
            queries=1 + found.queries,
            passes=passes * (1 + found.queries + found.gradients),
            backward=passes * found.gradients,
        )
        if torch.equal(found.tokens, victim.tokens):
            return row
        text = model.written(sentence, victim.tokens, found.tokens)
        last = model.judge_text(text, label)
        status: Status = "succeeded" if last.answer.broken else "failed"
        return replace(
            row,
            prediction=last.prediction,
            status=status,
            loss=last.loss,
            passes=row.passes + passes,
            changed=Text(text).changed(Text(sentence)),
            nonfinite=last.nonfinite,
            text=text,
            confidence=last.confidence,
        )


class _Model:
    """The shard's model, as a search sees it."""

    def __init__(self, shard: Shard, passes: int) -> None:
        autocast = shard.dtype == "bfloat16"
        self.data = shard.sentences
        self.layer = word_vectors(shard.classifier)
        self.allowed = swappable(self.data).to(shard.device)
        self.reader = Reader(
            shard.classifier,
            self.data.cut,
            longest=shard.image_size,
            rows=shard.batch_size,
            device=shard.device,
            autocast=autocast,
        )
        self._classifier = shard.classifier
        self._device = shard.device
        self._size = shard.batch_size
        self._drawn = range(passes)
        self._passes = Passes(shard.classifier, shard.device, self.reader.limit)
        self._precision = torch.autocast(shard.device.type, torch.bfloat16, enabled=autocast)

    def judge_text(self, text: str, label: int) -> JudgedText:
        """The model's answer to a text."""
        with torch.no_grad():
            drawn = torch.stack([self.reader([text]) for _ in self._drawn])
            return judged(drawn, torch.tensor([label]))[0]

    def victim(self, sentence: str, label: int, most: int, loss: float) -> Victim:
        """A text as a search sees it."""
        (tokens,) = self.reader.tokens([sentence])
        return Victim(
            tokens=tokens,
            free=[place for place in swapped_places(sentence) if place < len(tokens)],
            allowed=self.allowed,
            vectors=self.layer.weight.detach(),
            most=most,
            loss=loss,
            gradient=lambda texts: self._gradient(texts, label),
            ask=lambda texts: self._ask(texts, label),
        )

    def written(self, sentence: str, before: Tensor, after: Tensor) -> str:
        """The text with the words of the swapped tokens."""
        words, names = sentence.split(), self.data.vocabulary.words
        for place in (before != after).nonzero()[:, 0].tolist():
            words[place] = names[int(after[place])]
        return " ".join(words)

    def _ask(self, texts: Tensor, label: int) -> list[Heard]:
        heard: list[Heard] = []
        with torch.no_grad(), self._precision:
            for batch in texts.split(self._size):
                tokens = batch.to(self._device)
                drawn = [torch.cat(self._passes.in_parts(tokens, self._classifier)) for _ in self._drawn]
                found = judged(torch.stack(drawn), torch.full((len(batch),), label))
                heard += [Heard(torch.inf if one.nonfinite else one.loss, one.answer.broken) for one in found]
        return heard

    def _gradient(self, texts: Tensor, label: int) -> Tensor:
        parts = [
            part
            for batch in texts.split(self._size)
            for part in self._passes.in_parts(batch.to(self._device), lambda rows: self._slopes(rows, label))
        ]
        return torch.cat(parts)

    def _slopes(self, rows: Tensor, label: int) -> Tensor:
        """Gradients of the cross-entropy by the vectors of texts (B, N), mean of all passes, (B, N, C)."""
        total = self._slope(rows, label)
        for _ in self._drawn[1:]:
            total = total + self._slope(rows, label)
        return total / len(self._drawn)

    def _slope(self, rows: Tensor, label: int) -> Tensor:
        def loss() -> Tensor:
            with self._precision:
                logits = self._classifier(rows)
            truth = torch.full((len(rows),), label, device=logits.device)
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
