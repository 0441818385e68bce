"""Windows of a text and labelled texts as batches."""

from __future__ import annotations

import pytest
import torch

from assay.workers.data.formats.text import Documents, Sentences
from assay.workers.data.formats.vocabulary import Vocabulary
from assay.workers.training.batches import TrainingBatch
from assay.workers.training.distributed.processes import Processes
from assay.workers.training.tokens import TokenBatches, texts, windows

LETTERS = [chr(ord("a") + number) for number in range(23)]
VOCABULARY = Vocabulary(["<pad>", "<unk>", *LETTERS])
TEXT = Documents(
    name="letters", ids=["0", "1"], read=lambda index: LETTERS[12 * index :][:12], vocabulary=VOCABULARY
)
CPU = torch.device("cpu")


def batches(
    start: int = 0, stop: int = 2, *, length: int = 4, seed: int = 0, batch_size: int = 2
) -> list[TrainingBatch]:
    source = TokenBatches(TEXT, windows, length=length, seed=seed, batch_size=batch_size, device=CPU)
    return list(source.between(start, stop))


def test_an_epoch_visits_every_window_and_targets_are_the_next_words() -> None:
    source = TokenBatches(TEXT, windows, length=4, seed=0, batch_size=2, device=CPU)
    assert (source.batch_size, source.steps_per_epoch) == (2, 2)
    assert TokenBatches(TEXT, windows, length=4, seed=0, batch_size=9, device=CPU).steps_per_epoch == 1
    (tokens, targets), *_ = [*batches(batch_size=5, stop=1)]
    assert tokens.dtype == targets.dtype == torch.int64
    assert torch.equal(tokens[:, 1:], targets[:, :-1])
    assert torch.equal(targets, tokens + 1)  # the letters follow each other
    # 23 words have 22 targets: five windows of 4, and the rest is left out.
    assert sorted(tokens.flatten().tolist()) == list(range(2, 22))


def test_the_order_is_keyed_by_seed_and_epoch_and_resumes_anywhere() -> None:
    whole = batches(stop=6)
    for batch, again in zip(whole[3:], batches(3, 6), strict=True):
        assert torch.equal(batch.images, again.images)
    starts = [[int(batch.images[0, 0]) for batch in run] for run in (whole, batches(stop=6, seed=1))]
    assert starts[0] != starts[1]
    assert starts[0][:2] != starts[0][2:4] or starts[0][2:4] != starts[0][4:6]


def test_several_processes_share_a_batch() -> None:
    alone = batches(stop=1, batch_size=4)[0].images
    parts = []
    for rank in range(2):
        source = TokenBatches(
            TEXT, windows, length=4, seed=0, batch_size=4, device=CPU, processes=Processes(rank=rank, size=2)
        )
        parts += [batch.images for batch in source.between(0, 1)]
    assert sorted(torch.cat(parts).tolist()) == sorted(alone.tolist())


def test_labelled_texts_come_with_their_labels() -> None:
    data = Sentences(
        name="tiny",
        class_names=("no", "yes"),
        ids=["0", "1"],
        sentences=["a b c", "d"],
        labels=[1, 0],
        vocabulary=VOCABULARY,
    )
    source = TokenBatches(data, texts, length=2, seed=0, batch_size=2, device=CPU)
    [(tokens, labels)] = source.between(0, 1)
    found = {tuple(row): label for row, label in zip(tokens.tolist(), labels.tolist(), strict=True)}
    assert found == {(2, 3): 1, (5, 0): 0}


def test_a_text_that_is_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match="'letters' has 23 words, a window of 23 needs one more"):
        batches(length=23)
