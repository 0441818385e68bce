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
stop words, with `min_cosine` only those whose vector has this cosine with that of the word as it was.

Deviations: the positions are the document's own words, where the paper appends a suffix; the search ends with
success, where the paper's goes on; and there is one prompt, not several. Swaps drawn twice are put to the
model once, and where there are no more than `tried`, all are.

Use it to see whether a few words of context can dictate what a language model says. What it does not find may
still be there: a longer search finds more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, Any

import torch
from annotated_types import Interval, Len
from torch import Tensor

from assay.attacks import parameters
from assay.attacks.kernel import frozen
from assay.attacks.words.search import gradient_swaps
from assay.attacks.words.search.draws import Draws
from assay.attacks.words.search.gradient_swaps import Heard, Victim
from assay.models.layers.token_model import word_vectors
from assay.service.contract.problems import nearest
from assay.workers.data.formats.vocabulary import PAD, UNKNOWN
from assay.workers.evaluation.engine.shard import Shard
from assay.workers.evaluation.engine.token_attack import OF_WHOLE_WORDS, gradient_by_vectors, words_of_letters
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
    max_share: Annotated[float, Interval(gt=0.0, le=1.0)] = 0.25,
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
        """Attacks the documents of the shard, one after the other.

        A ValueError as for `check_model`, without token gradients, or of a document without words.
        """
        text = shard.text
        self.check_model(shard)
        target = text.vocabulary.ids(self.target.split())
        room = min(self.prompt or shard.image_size, shard.image_size - len(target) + 1)
        stream = torch.from_numpy(text.stream().astype("int64"))
        table: dict[str, list[Any]] = {name: [] for name in COLUMNS.split()}
        allowed = words_of_letters(text.vocabulary)
        with frozen(shard.classifier):
            for done, (index, example) in enumerate(zip(shard.order, shard.ids, strict=True), start=1):
                words = stream[text.starts[index] : text.starts[index + 1]][:room]
                if not len(words):
                    raise ValueError(f"document {example!r} has no words to be a prompt")
                model = _Model(shard, target)
                draws = Draws(shard.seed, "forced_continuation", example)
                row = self._row(model, words, allowed, draws)
                for name, column in table.items():
                    column.append(row[name])
                shard.progress(done)
        lost = sum(None in pair for pair in zip(table["nll"], table["nll_before"], strict=True))
        return AttackedDocuments(shard.ids, table, {"nonfinite": lost})

    def _row(self, model: _Model, words: Tensor, allowed: Tensor, draws: Draws) -> dict[str, Any]:
        """The columns of one document, but its id."""
        free = allowed[words].nonzero().flatten().tolist()
        (before,), hit_before = model.losses(words[None]), model.says(words)
        after, found, hit, queries = words, before, hit_before, 1
        if free and not hit_before:
            victim = model.victim(words, free, allowed, max(1, int(self.max_share * len(free))), before)
            victim = replace(victim, min_cosine=self.min_cosine)
            search = gradient_swaps.gcg(victim, draws, self.steps, self.candidates, self.tried)
            after, queries = search.tokens, 1 + search.queries
            if not torch.equal(after, words):
                (found,), hit = model.losses(after[None]), model.says(after)
        spoken = len(model.target)
        return {
            "nll": found * spoken if math.isfinite(found) else None,
            "nll_before": before * spoken if math.isfinite(before) else None,
            "tokens": spoken,
            "hit": hit,
            "hit_before": hit_before,
            "swapped": int((after != words).sum()),
            "words": len(words),
            "eligible": len(free),
            "queries": queries,
            "forward": model.forward,
            "backward": model.backward,
        }


class _Model:
    """The shard's language model for the search; counts passes. B prompts of N words, m in the target."""

    def __init__(self, shard: Shard, target: Tensor) -> None:
        self.target = target
        self.forward = self.backward = 0
        self._shard = shard
        self._model = shard.language_model
        self._layer = word_vectors(shard.classifier)
        self._precision = torch.autocast(shard.device.type, torch.bfloat16, enabled=shard.dtype == "bfloat16")

    def victim(self, words: Tensor, free: list[int], allowed: Tensor, most: int, loss: float) -> Victim:
        """A prompt as the search sees it; the loss that it raises is the negative one of the target."""
        vectors = self._layer.weight.detach()
        return Victim(
            tokens=words,
            free=free,
            allowed=allowed.nonzero().flatten().to(vectors.device),
            vectors=vectors,
            most=most,
            loss=-loss,
            gradient=self._gradient,
            ask=self._ask,
        )

    def losses(self, prompts: Tensor) -> list[float]:
        """Mean over the target of -log p(word) after each prompt (B, N), of length B."""
        with torch.no_grad():
            found = [self._mean(part) for part in prompts.split(self._shard.batch_size)]
        return torch.cat(found).tolist()

    def says(self, prompt: Tensor) -> bool:
        """Whether greedy decoding after a prompt (N,) says the target.

        Each word of the target is the likeliest given those before it, which are then what was decoded: one
        pass serves for all.
        """
        self.forward += 1
        given = torch.cat([prompt, self.target[:-1]])[None].to(self._shard.device)
        with torch.no_grad(), self._precision:
            likeliest = self._model(given)[0, len(prompt) - 1 :].argmax(1)
        return torch.equal(likeliest.cpu(), self.target)

    def _mean(self, prompts: Tensor) -> Tensor:
        self.forward += len(prompts)
        whole = torch.cat([prompts, self.target.expand(len(prompts), -1)], 1).to(self._shard.device)
        with self._precision:
            losses = self._model.negative_log_likelihood(whole[:, :-1], whole[:, 1:], len(self.target))
        return losses.double().mean(1)

    def _ask(self, prompts: Tensor) -> list[Heard]:
        """Only the best of the prompts is asked whether it makes the model say the target."""
        values = [-loss if math.isfinite(loss) else -math.inf for loss in self.losses(prompts)]
        best = max(range(len(values)), key=values.__getitem__)
        said = self.says(prompts[best])
        return [Heard(value, said and row == best) for row, value in enumerate(values)]

    def _gradient(self, prompts: Tensor) -> Tensor:
        """Gradients by the vectors of prompts (B, N), (B, N, C)."""
        self.backward += len(prompts)
        found = gradient_by_vectors(self._layer, lambda: -self._mean(prompts).sum())
        return found[:, : prompts.shape[1]]
