"""Words of running text swapped against a language model, by gradients: HotFlip and GCG on causal models.

Ebrahimi et al. 2018, "HotFlip: White-Box Adversarial Examples for Text Classification", section 3; Zou et al.
2023, "Universal and Transferable Adversarial Attacks on Aligned Language Models", algorithm 1. The text is
cut into windows that do not overlap, as long as the model takes. In each window words of the document are
swapped so that the model predicts the words that stay worse:

    raised     mean over the unswapped words of the document in the window of -log p(word | words before it)
    swaps      w for word i by the highest (e_w - e_i)^T grad_i, e the words' vectors; `max_share` of the
               words that may be swapped, one at least: letters only, no stop words; cos(e_w, e_i) of the
               word as it was is at least `min_cosine`
    search     `gcg` draws swaps and goes to the best; `hotflip` is a beam search of `beam` texts

Only the document itself is swapped: its neighbours in the window are those of the text. Both perplexities of
the words that stay are in the row, before and after, as in `word_swap`, whose random swaps are the baseline.

Use it to see how far a few chosen words of context lead a language model astray. The harm found is a lower
bound: a longer search finds more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, get_args

import torch
from annotated_types import Interval
from torch import Tensor, nn

from assay.attacks import parameters
from assay.attacks.kernel import frozen
from assay.attacks.words.search import gradient_swaps
from assay.attacks.words.search.draws import Draws
from assay.attacks.words.search.gradient_swaps import Found, Heard, Victim
from assay.models.layers.token_model import TokenModel, word_vectors
from assay.workers.data.formats.vocabulary import UNKNOWN
from assay.workers.evaluation.engine.likelihood import Window, Windows, score
from assay.workers.evaluation.engine.outcomes import WithoutFiles
from assay.workers.evaluation.engine.shard import Shard
from assay.workers.evaluation.engine.token_attack import OF_WHOLE_WORDS, gradient_by_vectors, words_of_letters

__all__ = ["gradient_word_swap"]

TASKS = ("language",)
TABLE = "word_swap"
NEEDS = ("word_vectors",)
RULES = (OF_WHOLE_WORDS,)
PAPER = "Zou et al. 2023, Universal and Transferable Adversarial Attacks on Aligned Language Models"
# Of a window: it is scored before and after, and searched.
PASSES = (
    "2 + (params.search == 'gcg') * params.steps * (params.tried + 1)"
    " + (params.search == 'hotflip') * params.steps * params.beam * (params.candidates + 1)",
    "(params.search == 'gcg') * params.steps + (params.search == 'hotflip') * params.steps * params.beam",
)

COLUMNS = "nll tokens unknown swapped kept_nll kept_nll_before unknown_before eligible forward backward"

SearchName = Literal["gcg", "hotflip"]


def gradient_word_swap(
    *,
    search: SearchName = "gcg",
    max_share: Annotated[float, Interval(gt=0.0, le=1.0)] = 0.05,
    steps: Annotated[int, Interval(ge=1, le=10_000)] = 10,
    candidates: Annotated[int, Interval(ge=1, le=10_000)] = 32,
    tried: Annotated[int, Interval(ge=1, le=100_000)] = 32,
    beam: Annotated[int, Interval(ge=1, le=100)] = 1,
    min_cosine: parameters.MinCosine = None,
) -> SwappedWindows:
    """Perplexity per word of text in which words were swapped against the model, by its gradients.

    Args:
        search: `gcg` goes to the best of drawn swaps in each step; `hotflip` is a beam search, a swap a step.
        max_share: Share of the words of a window that may be swapped, and are, at most; one always may.
        steps: Rounds in each window, at most; hotflip swaps one word in each.
        candidates: Swaps with the highest estimates: at each position, from which gcg draws; in all, which
            hotflip puts to the model.
        tried: Swaps that gcg puts to the model in each step.
        beam: Texts that hotflip keeps after each step.

    Raises:
        ValueError: If a value is out of its range.
    """
    if search not in get_args(SearchName):
        raise ValueError(f"search is {search!r}, allowed are {', '.join(get_args(SearchName))}")
    return SwappedWindows(search, max_share, steps, candidates, tried, beam, min_cosine)


@dataclass(frozen=True)
class AttackedDocuments(WithoutFiles):
    """One row per document, in the order of `ids`: the columns of its evaluation's table."""

    ids: tuple[str, ...]
    table: dict[str, list[Any]]  # the other columns
    noted: dict[str, Any]  # evidence for warnings

    @property
    def forward(self) -> Tensor:
        """Texts or windows run for each document, int64 (n,)."""
        return torch.tensor(self.table["forward"], dtype=torch.int64)

    @property
    def backward(self) -> Tensor:
        """Gradients of each document, int64 (n,)."""
        return torch.tensor(self.table["backward"], dtype=torch.int64)

    def columns(self) -> dict[str, list[Any]]:
        """The rows as JSON columns; a loss that is not finite is None."""
        return {"id": list(self.ids), **self.table}

    def evidence(self) -> dict[str, Any]:
        """The counts that warnings rest on; those of shards add up."""
        return self.noted


@dataclass(frozen=True)
class SwappedWindows:
    """A search, ready to run over the windows of documents."""

    search: SearchName  # its name; random draws are keyed by it
    max_share: float  # share of the swappable words of a window
    steps: int
    candidates: int  # swaps with the highest estimates
    tried: int  # swaps drawn in each step
    beam: int
    # Least cosine of the vectors of a word and of the word that it becomes; None for none
    min_cosine: float | None = None

    def measure(self, shard: Shard) -> AttackedDocuments:
        """Attacks and scores the shard's documents, one after the other; a ValueError without gradients."""
        text = shard.text
        words = torch.from_numpy(text.stream().astype("int64"))
        windows = Windows(shard.image_size, shard.image_size)
        names = COLUMNS.split()
        table: dict[str, list[Any]] = {name: [] for name in names}
        with frozen(shard.classifier):
            model = _Model(shard)
            for done, (index, example) in enumerate(zip(shard.order, shard.ids, strict=True), start=1):
                draws = Draws(shard.seed, f"gradient_word_swap/{self.search}", example)
                part = (text.starts[index], text.starts[index + 1])
                row = self._document(model, words, part, windows, draws)
                for name in names:
                    table[name].append(row[name])
                shard.progress(done)
        lost = sum(value is None for value in table["nll"])
        swapped = {"swapped": sum(table["swapped"]), "swapped_unknown": 0}
        return AttackedDocuments(shard.ids, table, {"nonfinite": lost, **swapped, **model.noted})

    def _document(
        self, model: _Model, words: Tensor, part: tuple[int, int], windows: Windows, draws: Draws
    ) -> dict[str, Any]:
        """The columns of one document, but its id."""
        scored = (max(part[0], 1), part[1])
        after, eligible, queries, gradients = words.clone(), 0, 0, 0
        numbers = windows.numbers([scored], len(words))
        for number in numbers:
            window = windows.window(number, len(words))
            victim = model.victim(after, words, window, scored, self.max_share)
            victim = replace(victim, min_cosine=self.min_cosine)
            eligible += len(victim.free)
            if not victim.free:
                continue
            found = self._searched(victim, draws)
            after[window.start : window.start + window.length + 1] = found.tokens
            queries += found.queries + 1
            gradients += found.gradients
        own = slice(*scored)
        swapped = (after != words)[own].numpy()
        before, now = (model.losses(given, scored, windows)[own] for given in (words, after))

        def total(losses: Any) -> float | None:
            value = math.fsum(losses)
            return value if math.isfinite(value) else None

        return {
            "nll": total(now),
            "tokens": scored[1] - scored[0],
            "unknown": int((after[own] == UNKNOWN).sum()),
            "swapped": int(swapped.sum()),
            "kept_nll": total(now[~swapped]),
            "kept_nll_before": total(before[~swapped]),
            "unknown_before": int((words[own] == UNKNOWN).sum()),
            "eligible": eligible,
            "forward": queries + gradients + 2 * len(numbers),
            "backward": gradients,
        }

    def _searched(self, victim: Victim, draws: Draws) -> Found:
        if self.search == "hotflip":
            return gradient_swaps.hotflip(victim, self.steps, self.candidates, self.beam)
        return gradient_swaps.gcg(victim, draws, self.steps, self.candidates, self.tried)


class _Model:
    """The shard's language model, as a search sees it."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._model: TokenModel = shard.language_model
        self._layer: nn.Embedding = word_vectors(shard.classifier)
        self._swappable = words_of_letters(shard.text.vocabulary)
        self.noted: dict[str, Any] = {}

    def losses(self, words: Tensor, scored: tuple[int, int], windows: Windows) -> Any:
        """-log p of each word of a range of the text, float64, NaN elsewhere."""
        shard = self._shard
        found = score(
            self._model,
            words,
            [scored],
            windows,
            batch_size=shard.batch_size,
            device=shard.device,
            dtype=shard.dtype,
        )
        self.noted |= found.noted
        return found.losses

    def victim(
        self, text: Tensor, original: Tensor, window: Window, scored: tuple[int, int], max_share: float
    ) -> Victim:
        """A window of the text as a search sees it; words of other documents stay.

        `text` has the swaps of earlier windows, `original` has none, int64 (T,); `scored`: the document's
        words that are predicted; `max_share`: of the swappable words.
        """
        part = slice(window.start, window.start + window.length + 1)
        tokens, plain = text[part].clone(), original[part]
        places = torch.arange(window.start, window.start + window.length + 1)
        inside = (places >= scored[0]) & (places < scored[1])
        # The last word is predicted only; the first of a later window was an input of none before.
        free = self._swappable[plain] & inside & (tokens == plain)
        free[-1] = False
        chosen = free.nonzero().flatten().tolist()
        kept = inside[1:].to(self._shard.device)
        vectors = self._layer.weight.detach()
        return Victim(
            tokens=tokens,
            free=chosen,
            allowed=self._swappable.nonzero().flatten().to(vectors.device),
            vectors=vectors,
            most=max(1, int(max_share * len(chosen))),
            loss=self._mean(tokens[None], tokens, kept)[0].item() if chosen else 0.0,
            gradient=lambda texts: self._gradient(texts, tokens, kept),
            ask=lambda texts: self._ask(texts, tokens, kept),
        )

    def _mean(self, texts: Tensor, unswapped: Tensor, kept: Tensor) -> Tensor:
        """Mean loss of the unswapped words of the document in each text (B, L + 1), (B,)."""
        given = texts.to(self._shard.device)
        stays = kept & (given[:, 1:] == unswapped.to(given)[1:])
        precision = torch.autocast(
            self._shard.device.type, torch.bfloat16, enabled=self._shard.dtype == "bfloat16"
        )
        with precision:
            losses = self._model.negative_log_likelihood(given[:, :-1], given[:, 1:])
        return (losses.double() * stays).sum(1) / stays.sum(1).clamp(min=1)

    def _ask(self, texts: Tensor, unswapped: Tensor, kept: Tensor) -> list[Heard]:
        with torch.no_grad():
            found = torch.cat(
                [self._mean(part, unswapped, kept) for part in texts.split(self._shard.batch_size)]
            )
        return [Heard(value if math.isfinite(value) else math.inf, False) for value in found.tolist()]

    def _gradient(self, texts: Tensor, unswapped: Tensor, kept: Tensor) -> Tensor:
        """Gradients by the vectors of texts (B, L + 1), (B, L + 1, C); that of the last word is zero."""
        found = gradient_by_vectors(self._layer, lambda: self._mean(texts, unswapped, kept).sum())
        return torch.cat([found, torch.zeros_like(found[:, :1])], 1)
