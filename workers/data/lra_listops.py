"""The ListOps task of Long Range Arena from its released files; `listops` generates such trees.

Tay et al., ICLR 2021: listops-1000/basic_{train,val,test}.tsv of lra_release, with a line `Source`, tab,
`Target` first, then a tree with binary brackets, a tab and its value. As in the released reader, round
brackets are no tokens. The papers read 2000 tokens; trees are shorter.
"""

from __future__ import annotations

from pathlib import Path

from assay.workers.data.formats import parameters
from assay.workers.data.formats.dataset import CorruptData
from assay.workers.data.formats.folders import find_file
from assay.workers.data.formats.sequences import Evaluated, TokenSequences
from assay.workers.data.formats.text_files import content_lines
from assay.workers.data.listops import ALPHABET, DIGITS, value_of

__all__ = ["lra_listops"]

TASKS = ("sequence",)
PAPER = "Tay et al. 2021, Long Range Arena; Nangia and Bowman 2018, ListOps"
FACTS = {
    "classes": 10, "channels": 16, "words": False, "sentences": False, "pairs": False, "train": 96_000,
    "test": 2000, "long_range_task": "listops",
}  # fmt: skip

FILES = {"train": "basic_train.tsv", "validation": "basic_val.tsv", "test": "basic_test.tsv"}
HEADER = ["Source", "Target"]


def lra_listops(
    root: parameters.Root,
    split: parameters.Split,
    *,
    folder: parameters.Folder = "lra_release/listops-1000",
    evaluated: Evaluated = "test",
) -> TokenSequences:
    """Long Range Arena's ListOps (ten classes) from FOLDER/basic_{train,val,test}.tsv."""
    part = "train" if split == "train" else evaluated
    advice = (
        f"The data set 'lra_listops' wants {', '.join(FILES.values())}, as in listops-1000 of lra_release;"
        " the data set 'listops' makes such trees without files."
    )
    path = find_file(root, folder, FILES[part], advice=advice)
    rows = _read(path)
    return TokenSequences(
        name="lra_listops",
        class_names=DIGITS,
        ids=[f"{part}/{number:06d}" for number in range(len(rows))],
        labels=[label for _, label in rows],
        vocabulary=ALPHABET,
        read=lambda index: (ALPHABET.ids(rows[index][0].split()),),
    )


def _read(path: Path) -> list[tuple[str, int]]:
    rows = []
    for number, line in enumerate(content_lines(path), start=1):
        cells = line.split("\t")
        if cells == HEADER and number == 1:
            continue
        source = " ".join(cells[0].replace("(", " ").replace(")", " ").split())
        if len(cells) != 2 or cells[1] not in DIGITS or not _is_value(source, cells[1]):
            raise CorruptData(f"{path} line {number}: {line[:80]!r} is not a tree, a tab and its value")
        rows.append((source, int(cells[1])))
    if not rows:
        raise CorruptData(f"{path} has no trees")
    return rows


def _is_value(source: str, label: str) -> bool:
    try:
        return value_of(source.split()) == int(label)
    except ValueError:
        return False
