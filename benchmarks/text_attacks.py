"""Speed of text attacks: queries of many examples in one batch, against one example at a time; then padding.

    python -m benchmarks.text_attacks

An untrained classifier (a transformer of 4 layers and width 128), sentences of 20 drawn words. Both sides ask
the same queries in batches of at most 64; a single example fills batches with its own. One thread; the
fastest of three alternating turns. Padding: sentences of 3 to 50 words under `deepwordbug`, sorted by
length and cut into passes of one size, and as `text_reader.passes` cuts them on a CPU.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Sequence
from unittest.mock import patch

import torch
from torch import Tensor

from assay.models.lm import lm
from assay.models.text_classifier import text_classifier
from assay.workers.data.formats.vocabulary import PAD, Vocabulary
from assay.workers.evaluation.deepwordbug import deepwordbug
from assay.workers.evaluation.engine.text import reader as text_reader
from assay.workers.evaluation.engine.text.attack import TextAttack
from assay.workers.evaluation.pruthi import pruthi

EXAMPLES, LENGTH, BATCH, TURNS = 64, 20, 64, 3


def backbone(classes: int, channels: int) -> torch.nn.Module:
    """Language model under the classifier."""
    return lm(classes, channels, width=128, depth=4, heads=4, hidden=256, length=64)


def reader(
    vocabulary: Vocabulary, rows: int, passes: list[tuple[int, int]] | None = None
) -> text_reader.Reader:
    """The untrained classifier as a function of sentences; notes the tokens of each pass, read and in all."""
    torch.manual_seed(0)
    model = text_classifier(2, len(vocabulary), backbone=backbone).eval()
    if passes is not None:
        model.register_forward_pre_hook(
            lambda _, given: passes.append((int((given[0] != PAD).sum()), given[0].numel()))
        )

    def cut(texts: Sequence[str], longest: int) -> list[Tensor]:
        return [vocabulary.ids(text.split())[:longest] for text in texts]

    return text_reader.Reader(model, cut, longest=64, rows=rows, device=torch.device("cpu"), autocast=False)


def seconds(attack: TextAttack, ask: text_reader.Reader, sentences: Sequence[str], together: int) -> float:
    """Seconds to attack all examples, the given number at a time."""
    labels = ask(sentences).argmax(1)
    start = time.perf_counter()
    for first in range(0, len(sentences), together):
        part = slice(first, first + together)
        ids = [str(number) for number in range(len(sentences))[part]]
        attack.run(ask, sentences[part], labels[part], ids, seed=0, batch_size=BATCH)
    return time.perf_counter() - start


def padding(sentences: Sequence[str], vocabulary: Vocabulary, rows: int, share: float) -> tuple[float, int]:
    """Share of padding in the tokens of all passes of an attack, and their number."""
    passes: list[tuple[int, int]] = []
    ask, attack = reader(vocabulary, rows, passes), deepwordbug()
    assert isinstance(attack, TextAttack)
    ids = [str(number) for number in range(len(sentences))]
    with patch.object(text_reader, "MAX_PADDING", share):
        labels = ask(sentences).argmax(1)
        attack.run(ask, sentences, labels, ids, seed=0, batch_size=rows)
    read, seen = map(sum, zip(*passes, strict=True))
    return 1 - read / seen, len(passes)


def main() -> None:
    """Print one line per recipe, and one per size of passes."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 9))) for _ in range(2000)]
    vocabulary = Vocabulary(["<pad>", "<unk>", *dict.fromkeys(words)])
    sentences = [" ".join(draw.choices(words, k=LENGTH)) for _ in range(EXAMPLES)]
    ask = reader(vocabulary, BATCH)
    for name, attack in {"deepwordbug": deepwordbug(), "pruthi": pruthi()}.items():
        assert isinstance(attack, TextAttack)
        found: dict[int, float] = {}
        for _ in range(TURNS):
            for together in (1, EXAMPLES):
                took = seconds(attack, ask, sentences, together)
                found[together] = min(took, found.get(together, took))
        ratio = found[1] / found[EXAMPLES]
        sys.stdout.write(
            f"{name:12} alone {found[1]:7.2f} s  together {found[EXAMPLES]:7.2f} s  {ratio:.1f}x\n"
        )
    mixed = [" ".join(draw.choices(words, k=draw.randint(3, 50))) for _ in range(2 * EXAMPLES)]
    for rows in (BATCH, 8 * BATCH):
        (before, many), (after, more) = (padding(mixed, vocabulary, rows, share) for share in (1.0, 0.05))
        sys.stdout.write(f"{rows:4} rows: padding {before:.1%} in {many} passes, {after:.1%} in {more}\n")


if __name__ == "__main__":
    main()
