"""The released pairs of papers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from assay.workers.data.formats.dataset import CorruptData, MissingData
from assay.workers.data.formats.sequences import TokenSequences
from assay.workers.data.lra_retrieval import lra_retrieval

FOLDER = "lra_release/tsv_data"


def write(root: Path, first: str = 'a "quoted" text', label: str = "1.0") -> Path:
    where = root / FOLDER
    where.mkdir(parents=True, exist_ok=True)
    for part in ("train", "eval", "test"):
        rows = [f"{label}\tP{part}1\tP2\t{first}\té", "0\tP3\tP4\tother\\n text\tlonger than the other"]
        text = "\n".join(rows) + "\n"
        (where / f"new_aan_pairs.{part}.tsv").write_text(text, encoding="utf-8", newline="")
    return where


def law_case(root: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> Callable[[str], TokenSequences]:
    """For tests/laws: two pairs in each part, with one byte or one label changed."""
    del monkeypatch
    write(root, first="b" if change == "word" else "a", label="0.0" if change == "label" else "1.0")
    return lambda split: lra_retrieval(root, "train" if split == "train" else "test")


def test_pairs_are_bytes_plus_one_with_padding(tmp_path: Path) -> None:
    write(tmp_path)
    data = lra_retrieval(tmp_path, "test")
    tokens = data.tokens([1, 0], 100)
    texts = [["other\\n text", "longer than the other"], ['a "quoted" text', "é"]]
    assert tokens.shape == (2, 2, 21)
    for pair, found in zip(texts, tokens.tolist(), strict=True):
        for text, row in zip(pair, found, strict=True):
            expected = [value + 1 for value in text.encode()]
            assert row == expected + [0] * (21 - len(expected))
    assert data.tokens([0], 1).tolist() == [[[98], [0xC3 + 1]]]
    assert data.labels.tolist() == [1, 0]
    assert data.tokens([], 5).shape == (0, 0)


def test_other_lines_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path) / "new_aan_pairs.test.tsv"
    for line in ("1\tid\tid\ttext", "2\tid\tid\ttext\ttext", "1\tid\tid\t\ttext", ""):
        path.write_text(f"1\tid\tid\ta\tb\n{line}\n")
        with pytest.raises(CorruptData, match=r"line 2: .* is not a label \(0 or 1\), two ids and two texts"):
            lra_retrieval(tmp_path, "test")
    path.write_text("")
    with pytest.raises(CorruptData, match="has no pairs"):
        lra_retrieval(tmp_path, "test")
    path.unlink()
    with pytest.raises(MissingData, match=r"new_aan_pairs\.test\.tsv not found"):
        lra_retrieval(tmp_path, "test")
    assert len(lra_retrieval(tmp_path, "test", evaluated="validation")) == 2
