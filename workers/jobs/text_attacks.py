"""Attacks on text within a job: the model as a function of sentences, the folders that attacks read."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from assay.attacks.kernel import frozen
from assay.service.catalog.catalog import load as load_catalog
from assay.service.contract.records import ArtifactDescription
from assay.service.contract.stored_specs import EvaluationItem
from assay.workers import catalog
from assay.workers.data.formats.text import SentenceSet, padded
from assay.workers.data.formats.vocabulary import UNKNOWN, Vocabulary
from assay.workers.evaluation.engine.forward import Limit, Passes
from assay.workers.evaluation.engine.text import TextOutcomes
from assay.workers.evaluation.engine.text_attack import TextAttack
from assay.workers.jobs import artifacts
from assay.workers.jobs.session import Loaded


def data_root() -> Path | None:
    """ASSAY_DATA_ROOT."""
    root = os.environ.get("ASSAY_DATA_ROOT")
    return Path(root) if root else None


def check_folders(item: EvaluationItem) -> None:
    """Refuse, before anything is measured, an evaluation whose folders are not there.

    Raises:
        MissingData: one is not; says how to fill it.
        CorruptData: what is in it cannot be read.
        ValueError: a name leads out of the data root.
    """
    component = load_catalog().find_evaluation(item["name"])
    if any(part.get("folder") for part in component.parameters["properties"].values()):
        catalog.build(component.kind, item["name"], item["params"])(root=data_root())


class Reader:
    """A text classifier as a function of sentences.

    Args:
        loaded: The classifier.
        vocabulary: The words' ids.
        autocast: Whether it computes in bfloat16.
    """

    def __init__(self, loaded: Loaded, vocabulary: Vocabulary, *, autocast: bool) -> None:
        self.limit = Limit()
        self._loaded = loaded
        self._vocabulary = vocabulary
        self._passes = Passes(loaded.classifier, loaded.device, self.limit)
        self._precision = torch.autocast(loaded.device.type, torch.bfloat16, enabled=autocast)

    def __call__(self, sentences: Sequence[str]) -> Tensor:
        """Logits (B, classes) of sentences; of one that is too long the first words are read."""
        tokens = self.tokens(sentences).to(self._loaded.device)
        return torch.cat(self._passes.in_parts(tokens, self._logits))

    def tokens(self, sentences: Sequence[str]) -> Tensor:
        """Ids of the words, int64 (B, N), padding on the right; a text without words is one unknown word."""
        longest = self._loaded.image_size
        rows = [self._vocabulary.ids(sentence.split()[:longest]) for sentence in sentences]
        return padded([row if len(row) else torch.tensor([UNKNOWN]) for row in rows])

    def _logits(self, tokens: Tensor) -> Tensor:
        with self._precision:
            logits: Tensor = self._loaded.classifier(tokens)
        return logits


def attack_text(
    attack: TextAttack,
    loaded: Loaded,
    data: SentenceSet,
    order: Sequence[int],
    *,
    batch_size: int,
    autocast: bool,
    progress: Callable[[int], None],
) -> TextOutcomes:
    """Attack some sentences of a set.

    Args:
        attack: what is done.
        loaded: the classifier.
        data: the set.
        order: which of its examples.
        batch_size: sentences in one batch.
        autocast: whether the classifier computes in bfloat16.
        progress: told how many examples are done.
    """
    reader = Reader(loaded, data.vocabulary, autocast=autocast)
    sentences = [data.sentences[index] for index in order]
    labels, ids = data.labels[list(order)], [data.ids[index] for index in order]
    with torch.no_grad(), frozen(loaded.classifier):
        found = attack(reader, sentences, labels, ids, batch_size=batch_size, progress=progress)
    return found.with_notes(reading(sentences, data.vocabulary, loaded.image_size) | reader.limit.noted())


def reading(sentences: Sequence[str], vocabulary: Vocabulary, longest: int) -> dict[str, int]:
    """How much of some sentences a model reads: `words`, `unknown_words` of them, and `cut_texts`."""
    lengths = [len(sentence.split()) for sentence in sentences]
    unknown = sum(int((vocabulary.ids(sentence.split()) == UNKNOWN).sum()) for sentence in sentences)
    return {
        "words": sum(lengths),
        "unknown_words": unknown,
        "cut_texts": sum(length > longest for length in lengths),
    }


def save_adversarial(path: Path, outcomes: TextOutcomes) -> ArtifactDescription:
    """Writes the adversarial texts that were found, a JSON object in each line, and describes the file."""
    return artifacts.write(path, outcomes.adversarial())
