"""What analyses of a language model's layers look at: a window of words from the start of each document."""

from __future__ import annotations

import pytest
from torch import nn

from assay.workers.data.formats.text import Documents
from assay.workers.data.formats.vocabulary import Vocabulary
from assay.workers.evaluation.engine.attention_layers import windows
from tests.support.shards import shard

WORDS = ["one", "two", "three", "four"]
# A text of ids 2, 3, 4, 5, 2, 3, 4, 5: two documents of four words.
DATA = Documents(
    name="given", ids=["a", "b"], read=lambda index: WORDS, vocabulary=Vocabulary(["<pad>", "<unk>", *WORDS])
)


@pytest.mark.parametrize(
    ("length", "longest", "found"),
    [
        (3, 6, [[2, 3, 4], [2, 3, 4]]),
        (6, 3, [[2, 3, 4], [2, 3, 4]]),  # the model reads no more
        (6, 6, [[2, 3, 4, 5, 2, 3], [4, 5, 2, 3, 4, 5]]),  # at the end of the text the last window
        (100, 100, [[2, 3, 4, 5, 2, 3, 4, 5]] * 2),
    ],
)
def test_windows_are_as_long_as_asked_as_the_model_reads_and_as_the_text_is(
    length: int, longest: int, found: list[list[int]]
) -> None:
    assert windows(shard(nn.Identity(), DATA, image_size=longest), length)([0, 1]).tolist() == found
