"""IMDB as bytes: the released ids, and no change of the text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from assay.workers.data.formats.dataset import CorruptData, MissingData
from assay.workers.data.formats.sequences import ByteTexts
from assay.workers.data.lra_text import lra_text
from tests.support.texts import write_imdb


def law_case(root: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> Callable[[str], ByteTexts]:
    """For tests/laws: two reviews of each class in each part, with one word or one label changed."""
    del monkeypatch
    where = write_imdb(root, first="A great film" if change == "word" else "A good film")
    if change == "label":
        for part in ("train", "test"):
            (where / part / "neg" / "1_2.txt").rename(where / part / "pos" / "2_2.txt")
    return lambda split: lra_text(root, "train" if split == "train" else "test")


def test_tokens_are_the_bytes_plus_one_and_are_cut(tmp_path: Path) -> None:
    write_imdb(tmp_path, first="É <br />\n\n It's")
    data = lra_text(tmp_path, "test")
    assert data.sentences[0] == "É <br />\n\n It's neg"
    expected = [value + 1 for value in "É <br />\n\n It's neg".encode()]
    assert data.tokens([0], 100)[0].tolist() == expected
    assert data.tokens([0, 2], 5).tolist() == [expected[:5], expected[:5]]
    assert data.encode("A").tolist() == [66]
    assert data.labels.tolist() == [0, 0, 1, 1]
    assert list(data.ids) == ["test/neg/0_1", "test/neg/1_2", "test/pos/0_1", "test/pos/1_2"]


def test_missing_and_damaged_reviews_are_named(tmp_path: Path) -> None:
    where = write_imdb(tmp_path)
    (where / "test" / "pos" / "0_1.txt").write_text("")
    with pytest.raises(CorruptData, match=r"pos/0_1\.txt is empty"):
        lra_text(tmp_path, "test")
    (where / "test" / "neg" / "0_1.txt").write_bytes(b"\xff")
    with pytest.raises(CorruptData, match=r"neg/0_1\.txt is not UTF-8"):
        lra_text(tmp_path, "test")
    with pytest.raises(MissingData, match="aclImdb"):
        lra_text(tmp_path / "train", "train", folder="other/aclImdb")
