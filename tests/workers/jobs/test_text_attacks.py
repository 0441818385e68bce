"""What an attack on text needs of a job."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from assay.workers.data.formats.dataset import MissingData
from assay.workers.data.formats.vocabulary import Vocabulary
from assay.workers.jobs.session import Loaded
from assay.workers.jobs.text_attacks import Reader, check_folders, reading
from tests.support.wordnet_files import write_wordnet

VOCABULARY = Vocabulary(["<pad>", "<unk>", "a", "good", "film"])


class Counting(nn.Module):
    """Logits (B, 2): how often ids 3 and 4 occur."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Tensor] = []

    def forward(self, tokens: Tensor) -> Tensor:
        self.seen.append(tokens)
        return torch.stack([(tokens == word).sum(1) for word in (3, 4)], 1).float()


def reader(longest: int = 4) -> tuple[Reader, Counting]:
    model = Counting()
    loaded = Loaded(model, longest, "", False, torch.device("cpu"), torch.float32)  # type: ignore[arg-type]
    return Reader(loaded, VOCABULARY, autocast=False), model


def test_words_become_ids_with_padding_on_the_right() -> None:
    ask, model = reader()
    logits = ask(["a good film", "good", "  g00d   film "])
    assert model.seen[0].tolist() == [[2, 3, 4], [3, 0, 0], [1, 4, 0]]
    assert logits.tolist() == [[1, 1], [1, 0], [0, 1]]


def test_what_is_too_long_is_cut_and_nothing_is_one_unknown_word() -> None:
    ask, model = reader(longest=2)
    ask(["a a good film", ""])
    assert model.seen[0].tolist() == [[2, 2], [1, 0]]


def test_counts_what_is_read() -> None:
    assert reading(["a good film", "a b c"], VOCABULARY, 2) == {
        "words": 6,
        "unknown_words": 2,
        "cut_texts": 2,
    }


def test_folders_are_looked_at_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = {"name": "pwws", "params": {"wordnet": "wordnet"}}
    monkeypatch.delenv("ASSAY_DATA_ROOT", raising=False)
    with pytest.raises(MissingData, match=r"docs/text-caches\.md"):
        check_folders(item)
    monkeypatch.setenv("ASSAY_DATA_ROOT", str(tmp_path))
    with pytest.raises(MissingData, match=r"docs/text-caches\.md"):
        check_folders(item)
    write_wordnet(tmp_path / "wordnet")
    check_folders(item)
    check_folders({"name": "deepwordbug", "params": {"max_edit_distance": 30}})
