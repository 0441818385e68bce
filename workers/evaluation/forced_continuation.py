"""A language model made to say a given text: GCG towards a target, on causal models.

Zou et al. 2023, "Universal and Transferable Adversarial Attacks on Aligned Language Models", algorithm 1. The
first words of a document are the prompt, and words of it are swapped until the model says the target:

    lowered    L = mean over the target's words of -log p(word | prompt, the target's words before it)
    X_i        the `candidates` words w with the lowest (e_w - e_i)^T grad_i L, e: the words' vectors
    each step  `tried` times a position i and a word of X_i, both uniformly, make a prompt with one swap; the
               one with the lowest L goes on, until the model says the target; the best of all steps counts
    said       each word of the target is the likeliest after the prompt and the words before it: greedy
               decoding says exactly this text

At most `max_share` of the prompt's words of letters (one at least) differ. Words become words of letters, no
stop words, with `min_cosine` only those whose vector has this cosine with the vector of the word as it was.

Deviations: the positions are the document's own words, where the paper appends a suffix; the search ends with
success, where the paper's goes on; and there is one prompt, not several. Swaps drawn twice are put to the
model once, and where there are no more than `tried`, all are.

Use it to see whether a few words of context can dictate what a language model says. What it does not find may
still be there: a longer search finds more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import torch
from annotated_types import Interval, Len
from torch import Tensor

from assay.attacks import parameters
from assay.attacks.kernel import frozen
from assay.attacks.sending import sent
from assay.attacks.words.search import gradient_swaps
from assay.attacks.words.search.draws import Draws
from assay.attacks.words.search.gradient_swaps import Heard, Queries, Question, Victim
from assay.models.layers.token_model import word_vectors
from assay.service.contract.problems import nearest
from assay.workers.data.formats.vocabulary import PAD, UNKNOWN
from assay.workers.evaluation.engine.attack.searches import Asked, by_search, of_one_length, together
from assay.workers.evaluation.engine.forward import Limit, Passes
from assay.workers.evaluation.engine.shard import Shard
from assay.workers.evaluation.engine.text.causality import MAX_LOGITS
from assay.workers.evaluation.engine.text.token_attack import (
    OF_WHOLE_WORDS,
    gradient_by_vectors,
    words_of_letters,
)
from assay.workers.evaluation.gradient_word_swap import AttackedDocuments

__all__ = ["forced_continuation"]

TASKS = ("language",)
TABLE = "forced_continuation"
NEEDS = ("word_vectors",)
RULES = (
    OF_WHOLE_WORDS,
    (
        "params.prompt is None or params.prompt <= model.length",
        "prompt must not be larger than the model's length: it has no positions for more words",
    ),
)
PAPER = "Zou et al. 2023, Universal and Transferable Adversarial Attacks on Aligned Language Models"
# The target is scored and checked before and after; each step has a gradient, the drawn swaps and a check.
PASSES = ("4 + params.steps * (params.tried + 2)", "params.steps")

# Of unknown words of a target, those whose nearest is looked for: seconds each in a large vocabulary.
COMPARED = 3
COLUMNS = "nll nll_before tokens hit hit_before swapped words eligible queries forward backward"


def forced_continuation(
    *,
    target: Annotated[str, Len(1, 1000)],
    prompt: Annotated[int, Interval(ge=1, le=65536)] | None = None,
    max_share: Annotated[float, "strength", Interval(gt=0, le=1)] = 0.25,
    steps: Annotated[int, Interval(ge=1, le=10_000)] = 20,
    candidates: Annotated[int, Interval(ge=1, le=10_000)] = 32,
    tried: Annotated[int, Interval(ge=1, le=100_000)] = 32,
    min_cosine: parameters.MinCosine = None,
) -> ForcedContinuation:
    """How often a language model says a given text after prompts in which words were swapped, by gradients.

    Args:
        target: What the model is made to say: words of the vocabulary, with spaces between them.
        prompt: First words of a document that are the prompt; null for as many as the model takes.
        max_share: Share of the prompt's words of letters that differ, at most; one always may.
        steps: Rounds, at most.
        candidates: Words at each position from which is drawn.
        tried: Swaps drawn and put to the model in each step.
    """
    return ForcedContinuation(target, prompt, max_share, steps, candidates, tried, min_cosine)


@dataclass(frozen=True)
class ForcedContinuation:
    """The search for one target, ready to run over documents; the attributes are its parameters."""

    target: str
    prompt: int | None
    max_share: float
    steps: int
    candidates: int
    tried: int
    min_cosine: float | None = None

    def check_model(self, shard: Shard) -> None:
        """Refuses a target that the model could not say, when the job is planned.

        A ValueError: words of the target are not in the vocabulary, or there is no room for it.
        """
        text, longest = shard.text, shard.image_size
        words, known = self.target.split(), text.vocabulary
        if not words:
            raise ValueError(f"target is {self.target!r}, it must have at least one word")
        lost = [word for word in dict.fromkeys(words) if known.id(word) in (PAD, UNKNOWN)]
        if lost:
            near = {word: nearest(word, known.words[UNKNOWN + 1 :]) for word in lost[:COMPARED]}
            named = ", ".join(
                f"{word!r} (nearest: {near[word]!r})" if near.get(word) else repr(word) for word in lost
            )
            raise ValueError(
                f"target has words that are not among the {len(known)} of {text.name!r}: {named}"
            )
        room = longest - len(words) + 1
        if room < 1:
            raise ValueError(
                f"target has {len(words)} words, allowed are at most {longest}, as the model takes"
            )
        if self.prompt is not None and self.prompt > room:
            raise ValueError(
                f"prompt is {self.prompt}, allowed are at most {room}: with a target of {len(words)} words"
                f" the model has room for no more"
            )

    def measure(self, shard: Shard) -> AttackedDocuments:
        """Attacks the documents of the shard, many at once.

        A ValueError as for `check_model`, without token gradients, or of a document without words.
        """
        text = shard.text
        self.check_model(shard)
        target = text.vocabulary.ids(self.target.split())
        room = min(self.prompt or shard.image_size, shard.image_size - len(target) + 1)
        stream = torch.from_numpy(text.stream().astype("int64"))
        rows: dict[int, dict[str, Any]] = {}
        prompts = []
        for number, (index, example) in enumerate(zip(shard.order, shard.ids, strict=True)):
            words = stream[text.starts[index] : text.starts[index + 1]][:room]
            if not len(words):
                raise ValueError(f"document {example!r} has no words to be a prompt")
            prompts.append(_Prompt(number, words))
        with frozen(shard.classifier):
            model = _Model(shard, target)
            searches = (
                (own, self._row(model, own, Draws(shard.seed, "forced_continuation", example)))
                for own, example in zip(prompts, shard.ids, strict=True)
            )
            for ended in together(searches, shard.batch_size, model.slopes, model.heard):
                rows |= {
                    own.number: row | {"forward": own.forward, "backward": own.backward} for own, row in ended
                }
                shard.progress(len(rows))
        table = {name: [rows[number][name] for number in range(len(rows))] for name in COLUMNS.split()}
        lost = sum(None in pair for pair in zip(table["nll"], table["nll_before"], strict=True))
        return AttackedDocuments(shard.ids, table, {"nonfinite": lost, **model.limit.noted()})

    def _row(self, model: _Model, own: _Prompt, draws: Draws) -> Generator[Question, Any, dict[str, Any]]:
        words = own.words
        free = model.allowed[words].nonzero().flatten().tolist()
        (before,) = yield Queries(words[None])
        after, last, queries = words, before, 1
        if free and not before.broken:
            victim = model.victim(words, free, max(1, int(self.max_share * len(free))), before.loss)
            victim = replace(victim, min_cosine=self.min_cosine)
            search = yield from gradient_swaps.gcg(victim, draws, self.steps, self.candidates, self.tried)
            after, queries = search.tokens, 1 + search.queries
            if not torch.equal(after, words):
                (last,) = yield Queries(after[None])
        spoken = len(model.target)
        return {
            "nll": -last.loss * spoken if math.isfinite(last.loss) else None,
            "nll_before": -before.loss * spoken if math.isfinite(before.loss) else None,
            "tokens": spoken,
            "hit": last.broken,
            "hit_before": before.broken,
            "swapped": int((after != words).sum()),
            "words": len(words),
            "eligible": len(free),
            "queries": queries,
        }


@dataclass(eq=False)
class _Prompt:
    number: int  # its row in the shard
    words: Tensor  # int64 (N,)
    forward: int = 0
    backward: int = 0


class _Model:
    """The shard's language model, as searches see it; B prompts of N words, m words in the target."""

    def __init__(self, shard: Shard, target: Tensor) -> None:
        self.target = target
        self.allowed = words_of_letters(shard.text.vocabulary)
        self.limit = Limit()
        self._shard = shard
        self._model = shard.language_model
        self._layer = word_vectors(shard.classifier)
        self._passes = Passes(shard.classifier, shard.device, self.limit)
        self._precision = torch.autocast(shard.device.type, torch.bfloat16, enabled=shard.dtype == "bfloat16")

    def victim(self, words: Tensor, free: list[int], most: int, loss: float) -> Victim:
        """A prompt as a search sees it; it raises the negative loss of the target."""
        vectors = self._layer.weight.detach()
        return Victim(
            tokens=words,
            free=free,
            allowed=self.allowed.nonzero().flatten().to(vectors.device),
            vectors=vectors,
            most=most,
            loss=loss,
        )

    def heard(self, asked: Asked[_Prompt]) -> list[list[Heard]]:
        """The negative mean of -log p(word) over the target after each search's prompts.

        Only the best of a search's prompts is asked whether the model says the target after it.
        """
        with torch.no_grad():
            losses = torch.stack(self._by_pass([text for _, own in asked for text in own], self._mean))
            values = [-loss if math.isfinite(loss) else -math.inf for loss in losses.tolist()]
            mine = by_search(asked, values)
            best = [max(range(len(own)), key=own.__getitem__) for own in mine]
            prompts = [texts[row] for (_, texts), row in zip(asked, best, strict=True)]
            said = self.says(prompts)
        for own, texts in asked:
            own.forward += len(texts) + 1
        return [
            [Heard(value, hit and row == first) for row, value in enumerate(own)]
            for own, first, hit in zip(mine, best, said, strict=True)
        ]

    def slopes(self, asked: Asked[_Prompt]) -> list[Tensor]:
        """Gradients by the vectors of each search's prompts (B, N), (B, N, C)."""
        found = self._by_pass([text for _, own in asked for text in own], self._slope)
        for own, texts in asked:
            own.forward += len(texts)
            own.backward += len(texts)
        return [torch.stack(own) for own in by_search(asked, found)]

    def says(self, prompts: Sequence[Tensor]) -> list[bool]:
        """Whether greedy decoding after prompts, (N,) each, says the target.

        Each word of the target is the likeliest given those before it, which are then what was decoded: one
        pass serves for all.
        """
        longest = max(map(len, prompts)) + len(self.target)
        rows = max(1, MAX_LOGITS // (longest * self._shard.classes))
        with torch.no_grad():
            found = torch.stack(self._by_pass(prompts, self._likeliest, rows)).cpu()
        return (found == self.target).all(1).tolist()

    def _by_pass(
        self, prompts: Sequence[Tensor], work: Callable[[Tensor], Tensor], rows: int | None = None
    ) -> list[Tensor]:
        size = min(self._shard.batch_size, rows or self._shard.batch_size)
        found: dict[int, Tensor] = {}
        for places in of_one_length(prompts, size, self._shard.device):
            given = sent(torch.stack([prompts[place] for place in places]), self._shard.device)
            found |= zip(places, torch.cat(self._passes.in_parts(given, work)), strict=True)
        return [found[place] for place in range(len(prompts))]

    def _likeliest(self, prompts: Tensor) -> Tensor:
        given = self._whole(prompts)[:, :-1]
        with self._precision:
            logits: Tensor = self._model(given)
        return logits[:, prompts.shape[1] - 1 :].argmax(2)

    def _mean(self, prompts: Tensor) -> Tensor:
        whole = self._whole(prompts)
        with self._precision:
            losses = self._model.negative_log_likelihood(whole[:, :-1], whole[:, 1:], len(self.target))
        return losses.double().mean(1)

    def _whole(self, prompts: Tensor) -> Tensor:
        return torch.cat([prompts, sent(self.target, prompts).expand(len(prompts), -1)], 1)

    def _slope(self, prompts: Tensor) -> Tensor:
        found = gradient_by_vectors(self._layer, lambda: -self._mean(prompts).sum())
        return found[:, : prompts.shape[1]]
