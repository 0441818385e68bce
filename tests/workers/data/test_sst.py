"""The files of SST-2 and SST-5, GLUE's among them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from assay.workers.data.formats.dataset import CorruptData, MissingData
from assay.workers.data.formats.text import Sentences
from assay.workers.data.sst import sst
from assay.workers.data.wikitext import wikitext
from tests.support.texts import write_sst, write_wikitext


def law_case(root: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> Callable[[str], Sentences]:
    """For tests/laws: three sentences in each part, with one word or one label changed."""
    del monkeypatch
    first = "a great film" if change == "word" else "a good film"
    write_sst(root, first=first, label=0 if change == "label" else 1)
    return lambda split: sst(root, "train" if split == "train" else "test", least_count=1)


def test_two_classes_and_five(tmp_path: Path) -> None:
    write_sst(tmp_path)
    two, five = sst(tmp_path, "test"), sst(tmp_path, "test", classes=5)
    assert two.sentences == five.sentences == ["a good film", "a bad film .", "good , good"]
    assert (two.labels.tolist(), five.labels.tolist()) == ([1, 0, 1], [4, 0, 4])
    assert (two.classes, five.classes) == (2, 5)
    assert list(two.ids) == ["test/000001", "test/000002", "test/000003"]
    assert two.vocabulary.words == ("<pad>", "<unk>", "good", "a", "film")  # what occurs at least twice
    assert sst(tmp_path, "test", evaluated="dev").ids[0] == "dev/000001"


def test_glue_files_have_a_header_and_a_test_part_without_labels(tmp_path: Path) -> None:
    where = tmp_path / "SST-2"
    where.mkdir()
    for part in ("train", "dev"):
        (where / f"{part}.tsv").write_text("sentence\tlabel\nfine work \t1\n\n")
    (where / "test.tsv").write_text("index\tsentence\n0\tfine work\n")
    data = sst(tmp_path, "test", folder="SST-2", evaluated="dev")
    assert (data.sentences, data.labels.tolist(), list(data.ids)) == (["fine work"], [1], ["dev/000002"])
    with pytest.raises(CorruptData, match=r"test\.tsv line 1.*evaluated = 'dev'"):
        sst(tmp_path, "test", folder="SST-2")
    with pytest.raises(MissingData, match=r"sst5\.train\.tsv or sst5\.train\.txt not found"):
        sst(tmp_path, "train", folder="SST-2", classes=5)


def test_the_words_may_be_those_of_a_language_set(tmp_path: Path) -> None:
    write_sst(tmp_path)
    write_wikitext(tmp_path, train="a good thing")
    data = sst(tmp_path, "test", vocabulary=wikitext)
    assert data.vocabulary.sha256 == wikitext(tmp_path, "train").vocabulary.sha256
    good = data.vocabulary.id("good")
    assert data.tokens([2], 8).tolist() == [[good, 1, good]]


@pytest.mark.parametrize("line", ["no label", "a film\t2", "\t1", "a film\t"])
def test_damaged_lines_are_named(tmp_path: Path, line: str) -> None:
    (write_sst(tmp_path) / "sst2.test.tsv").write_text(f"fine\t1\n{line}\n")
    with pytest.raises(CorruptData, match=r"sst2\.test\.tsv line 2"):
        sst(tmp_path, "test")
