"""Articles, words and ends of lines of WikiText's files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from assay.workers.data.formats.dataset import CorruptData, MissingData
from assay.workers.data.formats.text import Documents
from assay.workers.data.wikitext import wikitext
from tests.support.texts import write_wikitext


def law_case(root: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> Callable[[str], Documents]:
    """For tests/laws: two articles in each part, with one word changed."""
    del monkeypatch
    words = ("a b z", "a z d") if change == "word" else ("a b c", "a b d")
    write_wikitext(root, train=words[0], test=words[1])
    return lambda split: wikitext(root, "train" if split == "train" else "test")


def test_an_article_begins_at_its_title_and_every_line_ends(tmp_path: Path) -> None:
    write_wikitext(tmp_path)
    data = wikitext(tmp_path, "test")
    assert list(data.ids) == ["test/00000", "test/00001"]
    first = "<eos> = One = <eos> <eos> a b d <eos> = = Section = = <eos> more words <eos> <eos>"
    assert " ".join(data.words(0)) == first
    assert " ".join(data.words(1)) == first.replace("One", "Two").removeprefix("<eos> ").removesuffix(
        " <eos>"
    )
    assert data.starts[-1] == len(data.stream()) == 38
    # The words of the training part by frequency: <eos> 12, = 12, then by alphabet; d is not among them.
    assert data.vocabulary.words[2:4] == ("<eos>", "=")
    assert (data.stream() == 1).sum() == 2
    assert wikitext(tmp_path, "test", evaluated="valid").ids[0] == "valid/00000"


def test_what_only_looks_like_a_title_begins_no_article(tmp_path: Path) -> None:
    where = write_wikitext(tmp_path)
    text = " \n = One = \n \n x = y \n = 3 + 4 = \n words \n \n = Two = \n words \n"
    (where / "wiki.test.tokens").write_text(text)
    assert len(wikitext(tmp_path, "test")) == 1
    (where / "wiki.test.tokens").write_text("no title\n \n = One = \n \n words")
    data = wikitext(tmp_path, "test")
    assert [data.words(0), data.words(1)[-1]] == [["no", "title", "<eos>", "<eos>"], "<eos>"]


def test_missing_and_damaged_files_are_named(tmp_path: Path) -> None:
    where = write_wikitext(tmp_path)
    (where / "wiki.test.tokens").write_bytes(b"\xff\xfe\n")
    with pytest.raises(CorruptData, match=r"wiki\.test\.tokens is not UTF-8"):
        wikitext(tmp_path, "test").stream()
    (where / "wiki.test.tokens").write_text("")
    with pytest.raises(CorruptData, match="empty"):
        wikitext(tmp_path, "test")
    (where / "wiki.test.tokens").unlink()
    with pytest.raises(MissingData, match=r"wiki\.test\.tokens not found.*wiki\.train\.tokens, wiki"):
        wikitext(tmp_path, "test")
    assert len(wikitext(tmp_path, "train")) == 2
    (where / "wiki.train.tokens").write_text("a <pad> b\n")
    with pytest.raises(CorruptData, match="<pad>"):
        wikitext(tmp_path, "train")
