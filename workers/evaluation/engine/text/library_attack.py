"""Runs a recipe of a library against a text classifier: one text after the other, by the library's own code.

The library draws from the global generators, seeded for each text by the job's seed, the recipe and the
example's id: neither the batch nor the worker changes an outcome. It asks about at most 32 texts at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from assay.attacks.kernel import frozen
from assay.attacks.words.libraries.textattack import PACKAGE, LibraryRecipe
from assay.attacks.words.search.text import Text
from assay.service.contract.extras import require_module
from assay.workers.evaluation.engine.shard import Shard
from assay.workers.evaluation.engine.text.attack import Ask, JudgedText, judged, reader_of, with_notes
from assay.workers.evaluation.engine.text.outcomes import TextOutcomes, TextRow
from assay.workers.training.randomness import derive_seed, library_generators_restored, seed_libraries


@dataclass(frozen=True)
class LibraryTextAttack:
    """A recipe of TextAttack; `open` reads what it needs below the data root."""

    open: Callable[[Path | None], LibraryRecipe]

    def check(self, root: Path | None) -> None:
        """Looks for the package, a MissingExtra without it, then reads the folder, with `open`'s errors."""
        require_module(f"backend {PACKAGE!r}", PACKAGE)
        self.open(root)

    def measure(self, shard: Shard) -> TextOutcomes:
        """Attacks every text of the shard."""
        reader, data = reader_of(shard), shard.sentences
        recipe, rows = self.open(shard.root), list[TextRow]()
        with torch.no_grad(), frozen(shard.classifier), library_generators_restored():
            for index, label, example in zip(shard.order, shard.labels.tolist(), shard.ids, strict=True):
                answers = Victim(reader, label, reader.read)
                rows.append(attacked(recipe, answers, data.sentences[index], example, shard.seed))
                if shard.progress is not None:
                    shard.progress(len(rows))
        return with_notes(TextOutcomes(tuple(rows)), shard, reader)


@dataclass
class Victim:
    """The model's answers to the texts of an example: one pass for what it reads alike."""

    ask: Ask
    label: int
    key: Callable[[str], Hashable] = str
    known: dict[Hashable, JudgedText] = field(default_factory=dict)
    shares: dict[Hashable, Tensor] = field(default_factory=dict)

    def probabilities(self, texts: Sequence[str]) -> Tensor:
        """Softmax of the logits, float64 (B, classes); an answer that is not finite is wrong for certain."""
        keys = [self.key(text) for text in texts]
        new = {key: text for key, text in zip(keys, texts, strict=True) if key not in self.known}
        if new:
            logits = self.ask(list(new.values())).double().cpu()
            found = judged(logits[None], torch.full((len(new),), self.label))
            self.known.update(zip(new, found, strict=True))
            self.shares.update(zip(new, self._certain(logits.softmax(1), found), strict=True))
        return torch.stack([self.shares[key] for key in keys])

    def of(self, text: str) -> JudgedText:
        """The answer to a text."""
        if self.key(text) not in self.known:
            self.probabilities([text])
        return self.known[self.key(text)]

    def _certain(self, shares: Tensor, found: Sequence[JudgedText]) -> Tensor:
        wrong = torch.full_like(shares[0], 1 / max(shares.shape[1] - 1, 1))
        wrong[self.label] = 0.0
        rows = [wrong if one.nonfinite else share for share, one in zip(shares, found, strict=True)]
        return torch.stack(rows)


def attacked(recipe: LibraryRecipe, answers: Victim, sentence: str, example: str, seed: int) -> TextRow:
    """The outcome of a text; leaves the global generators of random numbers advanced."""
    seed_libraries(derive_seed(seed, f"{PACKAGE}/{recipe.name}/{example}", 0))
    found = recipe.attack(answers.probabilities, sentence, answers.label)
    before, last = answers.of(sentence), answers.of(found.text)
    original = Text(sentence)
    return TextRow(
        id=example,
        label=answers.label,
        prediction=last.prediction,
        status=found.status,
        loss=last.loss,
        queries=found.queries,
        passes=len(answers.known),
        words=len(original.words),
        changed=Text(found.text).changed(original),
        nonfinite=last.nonfinite,
        original=sentence,
        text=found.text,
        clean_confidence=before.confidence,
        confidence=last.confidence,
    )
