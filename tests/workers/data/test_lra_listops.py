"""The released ListOps files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from assay.workers.data.formats.dataset import CorruptData, MissingData
from assay.workers.data.formats.sequences import TokenSequences
from assay.workers.data.lra_listops import lra_listops

FOLDER = "lra_release/listops-1000"
# As the released generator writes it: a binary bracket for every argument.
TREES = {
    "train": [("( ( ( ( [MAX 2 ) 9 ) 0 ) ] )", 9), ("( ( ( [SM 7 ) ( ( ( [MIN 4 ) 5 ) ] ) ) ] )", 1)],
    "val": [("( ( ( [MIN 1 ) 2 ) ] )", 1)],
    "test": [("( ( ( ( [MED 1 ) 2 ) 9 ) ] )", 2), ("( ( ( [MIN 8 ) 3 ) ] )", 3)],
}


def write(root: Path, change: str = "none") -> Path:
    where = root / FOLDER
    where.mkdir(parents=True, exist_ok=True)
    for part, trees in TREES.items():
        rows = list(trees)
        if change == "word":  # another tree of the same value
            rows[0] = (rows[0][0].replace("[MAX 2 )", "[MAX 3 )").replace("[MED 1 )", "[MED 0 )"), rows[0][1])
        if change == "label":
            rows[0] = ("( ( ( [MIN 8 ) 7 ) ] )", 7)
        text = "Source\tTarget\r\n" + "".join(f"{tree}\t{value}\r\n" for tree, value in rows)
        (where / f"basic_{part}.tsv").write_text(text, newline="")
    return where


def law_case(root: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> Callable[[str], TokenSequences]:
    """For tests/laws: two trees in each part, with one token or one tree and its label changed."""
    del monkeypatch
    write(root, change)
    return lambda split: lra_listops(root, "train" if split == "train" else "test")


def test_tokens_have_no_round_brackets(tmp_path: Path) -> None:
    write(tmp_path)
    data = lra_listops(tmp_path, "train")
    words = [[data.vocabulary.words[number] for number in row] for row in data.tokens([0, 1], 2000).tolist()]
    assert words[0] == ["[MAX", "2", "9", "0", "]", "<pad>", "<pad>"]
    assert words[1] == ["[SM", "7", "[MIN", "4", "5", "]", "]"]
    assert data.labels.tolist() == [9, 1]
    assert list(lra_listops(tmp_path, "test", evaluated="validation").ids) == ["validation/000000"]


@pytest.mark.parametrize("line", ["( ( [MAX 2 ) ] )\t3", "( [MAX 2\t2", "no tree", "( ( [MAX 2 ) ] )\t12"])
def test_what_is_no_tree_with_its_value_is_refused(tmp_path: Path, line: str) -> None:
    where = write(tmp_path)
    (where / "basic_test.tsv").write_text(f"Source\tTarget\n{line}\n")
    with pytest.raises(CorruptData, match=r"basic_test\.tsv line 2: .* is not a tree, a tab and its value"):
        lra_listops(tmp_path, "test")


def test_missing_files_are_named(tmp_path: Path) -> None:
    where = write(tmp_path)
    (where / "basic_val.tsv").unlink()
    with pytest.raises(MissingData, match=r"basic_val\.tsv not found .*'listops' makes such trees"):
        lra_listops(tmp_path, "test", evaluated="validation")
    (where / "basic_test.tsv").write_text("Source\tTarget\n")
    with pytest.raises(CorruptData, match="has no trees"):
        lra_listops(tmp_path, "test")
