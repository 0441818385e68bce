"""Documents from tables, for language models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from assay.workers.data.document_table import TableDocuments, document_table
from assay.workers.data.formats.dataset import CorruptData
from tests.support.tables import write_table


def law_case(root: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> Callable[[str], TableDocuments]:
    """For tests/laws: two documents in each part, with one word changed."""
    del monkeypatch
    first = "a great film" if change == "word" else "a good film"
    for part in ("train", "test"):
        write_table(root / "d" / f"{part}.jsonl", [{"text": f"{first}\nin two lines"}, {"text": "the end"}])
    return lambda split: document_table(root, "train" if split == "train" else "test", folder="d")


def test_a_document_is_its_text_and_its_words(tmp_path: Path) -> None:
    write_table(tmp_path / "d" / "test.parquet", [{"body": "One  two.\nThree"}, {"body": ""}])
    data = document_table(tmp_path, "test", folder="d", text="body", separator="\n")
    assert [data.text(number) for number in range(2)] == ["One  two.\nThree\n", "\n"]
    assert data.words(0) == ["One", "two.", "<eos>", "Three", "<eos>"]
    assert data.words(1) == ["<eos>"]
    assert data.content_sha256() != document_table(tmp_path, "test", folder="d", text="body").content_sha256()


def test_a_row_without_a_text_is_named(tmp_path: Path) -> None:
    write_table(tmp_path / "d" / "test.jsonl", [{"text": "a"}, {"text": None}])
    with pytest.raises(CorruptData, match=r"test\.jsonl row 1 \(the first is 0\): column 'text' has no text"):
        document_table(tmp_path, "test", folder="d")
