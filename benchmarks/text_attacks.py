"""Speed of text attacks: queries of many examples in one batch, against one example at a time.

    python -m benchmarks.text_attacks

An untrained classifier (a transformer of 4 layers and width 128), sentences of 20 drawn words. Both sides ask
the same queries in batches of at most 64; a single example fills batches with its own. One thread; the
fastest of three alternating turns.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Sequence

import torch
from torch import Tensor

from assay.models.lm import lm
from assay.models.text_classifier import text_classifier
from assay.workers.data.formats.text import padded
from assay.workers.data.formats.vocabulary import Vocabulary
from assay.workers.evaluation.deepwordbug import deepwordbug
from assay.workers.evaluation.engine.text_attack import TextAttack
from assay.workers.evaluation.pruthi import pruthi

EXAMPLES, LENGTH, BATCH, TURNS = 64, 20, 64, 3


def backbone(classes: int, channels: int) -> torch.nn.Module:
    """Language model under the classifier."""
    return lm(classes, channels, width=128, depth=4, heads=4, hidden=256, length=64)


def seconds(attack: TextAttack, sentences: Sequence[str], vocabulary: Vocabulary, together: int) -> float:
    """Seconds to attack all examples, the given number at a time."""
    torch.manual_seed(0)
    model = text_classifier(2, len(vocabulary), backbone=backbone).eval()

    def ask(texts: Sequence[str]) -> Tensor:
        with torch.no_grad():
            logits: Tensor = model(padded([vocabulary.ids(text.split()) for text in texts]))
        return logits

    labels = ask(sentences).argmax(1)
    start = time.perf_counter()
    for first in range(0, len(sentences), together):
        part = slice(first, first + together)
        ids = [str(number) for number in range(len(sentences))[part]]
        attack.run(ask, sentences[part], labels[part], ids, seed=0, batch_size=BATCH)
    return time.perf_counter() - start


def main() -> None:
    """Print one line per recipe."""
    torch.set_num_threads(1)
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 9))) for _ in range(2000)]
    vocabulary = Vocabulary(["<pad>", "<unk>", *dict.fromkeys(words)])
    sentences = [" ".join(draw.choices(words, k=LENGTH)) for _ in range(EXAMPLES)]
    for name, attack in {"deepwordbug": deepwordbug(), "pruthi": pruthi()}.items():
        assert isinstance(attack, TextAttack)
        found: dict[int, float] = {}
        for _ in range(TURNS):
            for together in (1, EXAMPLES):
                took = seconds(attack, sentences, vocabulary, together)
                found[together] = min(took, found.get(together, took))
        ratio = found[1] / found[EXAMPLES]
        sys.stdout.write(
            f"{name:12} alone {found[1]:7.2f} s  together {found[EXAMPLES]:7.2f} s  {ratio:.1f}x\n"
        )


if __name__ == "__main__":
    main()
