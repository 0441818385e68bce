"""IMDB's folders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from assay.workers.data.formats.dataset import CorruptData, MissingData
from assay.workers.data.formats.text import Sentences
from assay.workers.data.imdb import imdb
from tests.support.texts import write_imdb


def law_case(root: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> Callable[[str], Sentences]:
    """For tests/laws: two reviews of each class in each part, with one word or one label changed."""
    del monkeypatch
    where = write_imdb(root, first="A great film" if change == "word" else "A good film")
    if change == "label":
        for part in ("train", "test"):
            (where / part / "neg" / "1_2.txt").rename(where / part / "pos" / "2_2.txt")
    return lambda split: imdb(root, "train" if split == "train" else "test", least_count=1)


def test_reviews_are_cut_into_words(tmp_path: Path) -> None:
    write_imdb(tmp_path)
    data = imdb(tmp_path, "test", least_count=2)
    assert data.sentences[0] == "a good film . it 's fine ! neg"
    assert data.labels.tolist() == [0, 0, 1, 1]
    assert list(data.ids) == ["test/neg/0_1", "test/neg/1_2", "test/pos/0_1", "test/pos/1_2"]
    assert "neg" not in data.vocabulary
    assert data.vocabulary.words[2] == "film"


def test_missing_and_damaged_reviews_are_named(tmp_path: Path) -> None:
    where = write_imdb(tmp_path)
    (where / "test" / "pos" / "0_1.txt").write_text("<br />")
    with pytest.raises(CorruptData, match=r"pos/0_1\.txt has no words"):
        imdb(tmp_path, "test")
    (where / "test" / "neg" / "0_1.txt").write_bytes(b"\xff")
    with pytest.raises(CorruptData, match=r"neg/0_1\.txt is not UTF-8"):
        imdb(tmp_path, "test")
    for path in (where / "train" / "pos").iterdir():
        path.unlink()
    (where / "train" / "pos" / ".DS_Store").touch()
    for path in (where / "test" / "neg").iterdir():
        path.unlink()
    (where / "test" / "neg").rmdir()
    wanted = r"train/pos, test/neg, test/pos of .*; not there: test/neg; without a review \(.*: train/pos\."
    with pytest.raises(MissingData, match=wanted):
        imdb(tmp_path, "train")
