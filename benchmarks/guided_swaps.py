"""Gradient-guided swaps of words: many searches whose questions share passes, against one search at a time.

    python -m benchmarks.guided_swaps

Untrained transformers of 4 layers and width 128; a classifier with 32 texts of 5 to 40 drawn words, and a
causal model with 8 documents of 60 to 150 words in windows of 64. Batches of 32, one thread, the least
process time of four alternating turns. Passes are those of the model, with or without gradients, and padding
is the share of all tokens of these passes. The outcomes must be equal, losses but for rounding.
"""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple
from unittest.mock import patch

import torch

from assay.models.layers.token_model import TokenModel, word_vectors
from assay.models.lm import lm
from assay.models.text_classifier import text_classifier
from assay.workers.data.formats.text import Documents, Sentences
from assay.workers.data.formats.vocabulary import PAD, Vocabulary
from assay.workers.evaluation import forced_continuation, gradient_word_swap
from assay.workers.evaluation.engine.attack import searches
from assay.workers.evaluation.engine.shard import Shard
from assay.workers.evaluation.engine.text import token_attack
from assay.workers.evaluation.gcg import gcg
from assay.workers.evaluation.hotflip import hotflip

TEXTS, DOCUMENTS, LENGTH, BATCH, TURNS = 32, 8, 64, 32, 4
USERS = (forced_continuation, gradient_word_swap, token_attack)


def backbone(classes: int, channels: int) -> torch.nn.Module:
    """The transformer of both models."""
    return lm(classes, channels, width=128, depth=4, heads=4, hidden=256, length=LENGTH)


def shards() -> dict[str, Shard]:
    """The classifier with its texts, and the causal model with its documents."""
    draw = random.Random(0)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = list(dict.fromkeys("".join(draw.choices(letters, k=draw.randint(4, 9))) for _ in range(1000)))
    vocabulary = Vocabulary(["<pad>", "<unk>", *words])

    def drawn(count: int, least: int, most: int) -> list[list[str]]:
        return [draw.choices(words, k=draw.randint(least, most)) for _ in range(count)]

    torch.manual_seed(0)
    classifier = TokenModel(text_classifier(2, len(vocabulary), backbone=backbone)).eval()
    language = TokenModel(backbone(len(vocabulary), len(vocabulary))).eval()
    texts, documents = drawn(TEXTS, 5, 40), drawn(DOCUMENTS, 60, 150)
    with torch.no_grad():
        labels = [int(classifier(vocabulary.ids(text)[None]).argmax()) for text in texts]
    sentences = Sentences(
        name="texts",
        class_names=("a", "b"),
        ids=[f"text {number}" for number in range(TEXTS)],
        sentences=[" ".join(text) for text in texts],
        labels=labels,
        vocabulary=vocabulary,
    )
    stream = Documents(
        name="documents",
        ids=[f"document {number}" for number in range(DOCUMENTS)],
        read=lambda index: documents[index],
        vocabulary=vocabulary,
    )
    common: dict[str, Any] = {"image_size": LENGTH, "batch_size": BATCH, "device": torch.device("cpu")}
    return {
        "classifier": Shard(data=sentences, order=range(TEXTS), classifier=classifier, **common),
        "language": Shard(data=stream, order=range(DOCUMENTS), classifier=language, **common),
    }


def one_at_a_time(begun: Any, in_hand: int, *answers: Callable[..., Any]) -> Any:
    """As `together`, with one search in hand."""
    del in_hand
    return searches.together(begun, 1, *answers)


class Turn(NamedTuple):
    """What an evaluation took, and found."""

    seconds: float
    passes: int
    padding: float  # share of the tokens
    columns: dict[str, list[object]]


def run(evaluation: Any, of: Shard, *, alone: bool) -> Turn:
    """An evaluation, with one search in hand or with as many as a batch has rows."""
    passes: list[tuple[int, int]] = []
    hook = word_vectors(of.classifier).register_forward_hook(
        lambda _, given, __: passes.append((int((given[0] != PAD).sum()), given[0].numel()))
    )
    with ExitStack() as stack:
        stack.callback(hook.remove)
        if alone:
            for user in USERS:
                stack.enter_context(patch.object(user, "together", one_at_a_time))
        begun = time.process_time()
        found = evaluation.measure(of)
        took = time.process_time() - begun
    read, computed = map(sum, zip(*passes, strict=True))
    return Turn(took, len(passes), 1 - read / computed, found.columns())


def equal(one: Any, other: Any) -> bool:
    """Whether two values of a column are the same; fractions but for rounding."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-5)
    return bool(one == other)


def main() -> None:
    """Print a line for each evaluation."""
    torch.set_num_threads(1)
    of = shards()
    target = " ".join(of["language"].text.vocabulary.words[2:4])
    cases: dict[str, tuple[Any, Shard]] = {
        "gcg": (gcg(steps=4), of["classifier"]),
        "hotflip": (hotflip(steps=4), of["classifier"]),
        "gradient_word_swap": (gradient_word_swap.gradient_word_swap(steps=3), of["language"]),
        "forced_continuation": (
            forced_continuation.forced_continuation(target=target, steps=3),
            of["language"],
        ),
    }
    for name, (evaluation, shard) in cases.items():
        turns = [run(evaluation, shard, alone=number % 2 == 0) for number in range(2 * TURNS)]
        before, after = (min(turns[side::2], key=lambda one: one.seconds) for side in (0, 1))
        same = all(
            equal(*pair)
            for column, values in before.columns.items()
            for pair in zip(values, after.columns[column], strict=True)
        )
        sys.stdout.write(
            f"{name:20} alone {before.seconds:.2f} s in {before.passes} passes, together"
            f" {after.seconds:.2f} s in {after.passes}, padding {after.padding:.1%};"
            f" {before.seconds / after.seconds:.2f}x;"
            f" outcomes {'equal' if same else 'DIFFER'}\n"
        )


if __name__ == "__main__":
    main()
