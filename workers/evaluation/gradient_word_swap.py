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

Only the document itself is swapped: its neighbours in the window are the text's. Both perplexities of
the words that stay are in the row, before and after, as in `word_swap`, whose random swaps are the baseline.

Use it to see how far a few chosen words of context lead a language model astray. The harm found is a lower
bound: a longer search finds more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, NamedTuple, get_args

import torch
from annotated_types import Interval
from torch import Tensor, nn

from assay.attacks import parameters
from assay.attacks.kernel import frozen
from assay.attacks.sending import sent
from assay.attacks.words.search import gradient_swaps
from assay.attacks.words.search.draws import Draws
from assay.attacks.words.search.gradient_swaps import GuidedSearch, Heard, Queries, Question, Victim
from assay.models.layers.token_model import TokenModel, word_vectors
from assay.workers.data.formats.vocabulary import UNKNOWN
from assay.workers.evaluation.engine.attack.searches import Asked, by_search, of_one_length, together
from assay.workers.evaluation.engine.forward import Limit, Passes
from assay.workers.evaluation.engine.outcomes import WithoutFiles
from assay.workers.evaluation.engine.shard import Shard
from assay.workers.evaluation.engine.text.likelihood import Window, Windows, score
from assay.workers.evaluation.engine.text.token_attack import (
    OF_WHOLE_WORDS,
    gradient_by_vectors,
    words_of_letters,
)

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
    max_share: Annotated[float, "strength", Interval(gt=0, le=1)] = 0.05,
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
        """The counts that warnings rest on; counts of shards add up."""
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
        """Attacks and scores the shard's documents, many at once; a ValueError without gradients."""
        text = shard.text
        words = torch.from_numpy(text.stream().astype("int64"))
        windows = Windows(shard.image_size, shard.image_size)
        rows: dict[int, dict[str, Any]] = {}
        with frozen(shard.classifier):
            model = _Model(shard)
            documents = [
                _Document(number, (text.starts[index], text.starts[index + 1]), words, windows)
                for number, index in enumerate(shard.order)
            ]
            searches = ((one, self._document(model, one, shard.ids[one.number])) for one in documents)
            for ended in together(searches, shard.batch_size, model.slopes, model.heard):
                for document, (swaps, cost) in ended:
                    after = document.with_swaps(swaps)
                    losses = [model.losses(given, document.scored, windows) for given in (words, after)]
                    rows[document.number] = _columns(document, after, *losses) | cost
                shard.progress(len(rows))
        table = {name: [rows[number][name] for number in range(len(rows))] for name in COLUMNS.split()}
        lost = sum(value is None for value in table["nll"])
        swapped = {"swapped": sum(table["swapped"]), "swapped_unknown": 0}
        noted = model.noted | model.limit.noted()
        return AttackedDocuments(shard.ids, table, {"nonfinite": lost, **swapped, **noted})

    def _document(
        self, model: _Model, own: _Document, example: str
    ) -> Generator[Question, Any, tuple[list[SearchedWindow], dict[str, int]]]:
        draws = Draws(model.seed, f"gradient_word_swap/{self.search}", example)
        swaps: list[SearchedWindow] = []
        eligible, queries, gradients = 0, 0, 0
        for window in own.windows:
            free = own.enter(window, model.swappable)
            eligible += len(free)
            if not free:
                continue
            (unchanged,) = yield Queries(own.unswapped[None])
            victim = model.victim(own.unswapped, free, self.max_share, unchanged.loss)
            victim = replace(victim, min_cosine=self.min_cosine)
            found = yield from self._searched(victim, draws)
            swaps.append(SearchedWindow(window.start, found.tokens))
            queries += found.queries + 1
            gradients += found.gradients
        forward = queries + gradients + 2 * len(own.windows)
        return swaps, {"eligible": eligible, "forward": forward, "backward": gradients}

    def _searched(self, victim: Victim, draws: Draws) -> GuidedSearch:
        if self.search == "hotflip":
            return gradient_swaps.hotflip(victim, self.steps, self.candidates, self.beam)
        return gradient_swaps.gcg(victim, draws, self.steps, self.candidates, self.tried)


class SearchedWindow(NamedTuple):
    """A window after its search."""

    start: int  # its first word in the text
    words: Tensor  # with the word after it, int64 (L + 1,)


class _Document:
    def __init__(self, number: int, part: tuple[int, int], words: Tensor, windows: Windows) -> None:
        self.number = number  # its row in the shard
        self.words = words  # of the whole text, int64 (T,)
        self.scored = (max(part[0], 1), part[1])  # words that are predicted
        numbers = windows.numbers([self.scored], len(words))
        self.windows = [windows.window(place, len(words)) for place in numbers]
        self.unswapped = words[:0]  # of the window, with the word after it, int64 (L + 1,)
        self.kept = torch.zeros(0, dtype=torch.bool)  # its targets that are the document's, bool (L,)

    def enter(self, window: Window, swappable: Tensor) -> list[int]:
        """Goes to a window; returns the places of words that may be swapped, `swappable` bool (V,).

        The last word is predicted only, so that no window swaps a word of another.
        """
        self.unswapped = self.words[window.start : window.start + window.length + 1]
        places = torch.arange(window.start, window.start + window.length + 1)
        inside = (places >= self.scored[0]) & (places < self.scored[1])
        self.kept = inside[1:]
        return (swappable[self.unswapped] & inside)[:-1].nonzero().flatten().tolist()

    def with_swaps(self, swaps: Sequence[SearchedWindow]) -> Tensor:
        """The whole text with the swaps of the document, int64 (T,)."""
        after = self.words.clone()
        for start, words in swaps:
            changed = start + (words != self.words[start : start + len(words)]).nonzero().flatten()
            after[changed] = words[changed - start]
        return after


def _columns(own: _Document, after: Tensor, before: Any, now: Any) -> dict[str, Any]:
    """Columns of a document from the losses of its words, NaN elsewhere, float64 (T,)."""
    part = slice(*own.scored)
    swapped = (after != own.words)[part].numpy()

    def total(losses: Any) -> float | None:
        value = math.fsum(losses)
        return value if math.isfinite(value) else None

    return {
        "nll": total(now[part]),
        "tokens": own.scored[1] - own.scored[0],
        "unknown": int((after[part] == UNKNOWN).sum()),
        "swapped": int(swapped.sum()),
        "kept_nll": total(now[part][~swapped]),
        "kept_nll_before": total(before[part][~swapped]),
        "unknown_before": int((own.words[part] == UNKNOWN).sum()),
    }


class _Model:
    def __init__(self, shard: Shard) -> None:
        self.seed = shard.seed
        self.swappable = words_of_letters(shard.text.vocabulary)
        self.limit = Limit()
        self.noted: dict[str, Any] = {}
        self._shard = shard
        self._model: TokenModel = shard.language_model
        self._layer: nn.Embedding = word_vectors(shard.classifier)
        self._passes = Passes(shard.classifier, shard.device, self.limit)

    def losses(self, words: Tensor, scored: tuple[int, int], windows: Windows) -> Any:
        """-log p of each word of a range of a text, float64, NaN elsewhere."""
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

    def victim(self, tokens: Tensor, free: list[int], max_share: float, loss: float) -> Victim:
        """A window, int64 (L + 1,), as a search sees it; `max_share` of the `free` places may differ."""
        vectors = self._layer.weight.detach()
        return Victim(
            tokens=tokens,
            free=free,
            allowed=self.swappable.nonzero().flatten().to(vectors.device),
            vectors=vectors,
            most=max(1, int(max_share * len(free))),
            loss=loss,
        )

    def heard(self, asked: Asked[_Document]) -> list[list[Heard]]:
        """The mean loss of the words that stay, of each search's texts."""
        with torch.no_grad():
            found = torch.stack(self._by_pass(asked, self._mean)).tolist()
        return by_search(
            asked, [Heard(value if math.isfinite(value) else math.inf, False) for value in found]
        )

    def slopes(self, asked: Asked[_Document]) -> list[Tensor]:
        """Gradients by the vectors of each search's texts, (B, L + 1, C); zero for the last word."""
        return [torch.stack(own) for own in by_search(asked, self._by_pass(asked, self._slope))]

    def _by_pass(
        self, asked: Asked[_Document], work: Callable[[Tensor, Tensor, Tensor], Tensor]
    ) -> list[Tensor]:
        """What the work makes of each text, in order.

        It gets texts, unswapped texts, int64 (B, L + 1), and which targets are of the document, bool (B, L).
        """
        texts = [(text, one.unswapped, one.kept) for one, own in asked for text in own]
        shard, found = self._shard, dict[int, Tensor]()
        for places in of_one_length([text[1:] for text, *_ in texts], shard.batch_size, shard.device):
            columns = zip(*(texts[place] for place in places), strict=True)
            given = [sent(torch.stack(column), shard.device) for column in columns]

            def part(rows: Tensor, given: list[Tensor] = given) -> Tensor:
                own = slice(int(rows[0]), int(rows[-1]) + 1)
                return work(*(column[own] for column in given))

            parts = self._passes.in_parts(torch.arange(len(places)), part)
            found |= zip(places, torch.cat(parts), strict=True)
        return [found[place] for place in range(len(texts))]

    def _mean(self, texts: Tensor, unswapped: Tensor, kept: Tensor) -> Tensor:
        """Mean loss of the unswapped words of the document in each text (B, L + 1), (B,)."""
        stays = kept & (texts[:, 1:] == unswapped[:, 1:])
        device, half = self._shard.device.type, self._shard.dtype == "bfloat16"
        with torch.autocast(device, torch.bfloat16, enabled=half):
            losses = self._model.negative_log_likelihood(texts[:, :-1], texts[:, 1:])
        return (losses.double() * stays).sum(1) / stays.sum(1).clamp(min=1)

    def _slope(self, texts: Tensor, unswapped: Tensor, kept: Tensor) -> Tensor:
        found = gradient_by_vectors(self._layer, lambda: self._mean(texts, unswapped, kept).sum())
        return torch.cat([found, torch.zeros_like(found[:, :1])], 1)
