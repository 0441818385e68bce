"""The Stanford Sentiment Treebank: sentences of film reviews, in two or five classes.

Socher et al., "Recursive Deep Models for Semantic Compositionality Over a Sentiment Treebank", EMNLP 2013.
The files' tokens, between white space, are unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from assay.workers.data.formats import parameters
from assay.workers.data.formats.dataset import CorruptData, MissingData
from assay.workers.data.formats.folders import check_inside, find_folder
from assay.workers.data.formats.sentences import LeastCount, VocabularySource, vocabulary_for
from assay.workers.data.formats.text import Sentences
from assay.workers.data.formats.text_files import read_lines

__all__ = ["sst"]

TASKS = ("sequence",)
PAPER = "Socher et al. 2013, Recursive Deep Models for Semantic Compositionality Over a Sentiment Treebank"
FACTS = {"words": True, "sentences": True, "pairs": False}

CLASS_NAMES = {
    2: ("negative", "positive"),
    5: ("very negative", "negative", "neutral", "positive", "very positive"),
}
HEADER = ["sentence", "label"]


class LabelledSentence(NamedTuple):
    """A sentence of words with single spaces, its label and line number."""

    sentence: str
    label: int
    line: int


def sst(
    root: parameters.Root,
    split: Literal["train", "test"],
    *,
    folder: parameters.Folder = "sst",
    classes: Literal[2, 5] = 2,
    evaluated: Literal["test", "dev"] = "test",
    vocabulary: VocabularySource = None,
    least_count: LeastCount = 2,
) -> Sentences:
    """SST-2 or SST-5 from FOLDER/sst2.{train,dev,test}.tsv, GLUE's {train,dev}.tsv, or sst5.{...}.txt.

    A line of a .tsv file has a sentence, a tab and a label; one of a .txt file has a label, a space and a
    sentence.

    Args:
        split: "train" reads the training part.
        classes: 2 for negative and positive, 5 for the fine-grained labels.
        evaluated: which part is read for evaluation; GLUE's test part has no labels.
    """
    base, where = find_folder(root, folder)
    part = "train" if split == "train" else evaluated
    found = {name: _find(where, name, classes) for name in ("train", part)}
    for path in found.values():
        check_inside(path, base)
    rows = read(found[part], classes)
    train = [row.sentence for row in (rows if part == "train" else read(found["train"], classes))]
    return Sentences(
        name="sst",
        class_names=CLASS_NAMES[classes],
        ids=[f"{part}/{row.line:06d}" for row in rows],
        sentences=[row.sentence for row in rows],
        labels=[row.label for row in rows],
        vocabulary=vocabulary_for(vocabulary, root, train if vocabulary is None else (), least_count),
    )


def _find(where: Path, part: str, classes: int) -> Path:
    names = [f"sst{classes}.{part}.tsv", f"sst{classes}.{part}.txt"]
    names += [f"{part}.tsv"] if classes == 2 else []
    for name in names:
        if (where / name).is_file():
            return where / name
    raise MissingData(
        f"{' or '.join(names)} not found in {where}. The data set 'sst' with {classes} classes wants"
        " the parts train and test (or dev, with evaluated = 'dev'): .tsv files of sentence, tab, label,"
        " as in GLUE, or .txt files of label, space, sentence."
    )


def read(path: Path, classes: int) -> list[LabelledSentence]:
    """The rows of a file."""
    rows = list(_rows(path, read_lines(path), classes))
    if not rows:
        raise CorruptData(f"{path} has no sentences")
    return rows


def _rows(path: Path, lines: Sequence[str], classes: int) -> Iterator[LabelledSentence]:
    tabs = path.suffix == ".tsv"
    for number, line in enumerate(lines, start=1):
        cells = line.strip().split("\t")
        if not line.strip() or (number == 1 and cells == HEADER):
            continue
        text, label = line.rpartition("\t")[::2] if tabs else line.partition(" ")[::-2]
        sentence = " ".join(text.split())
        if label.strip() not in map(str, range(classes)) or not sentence:
            form = "a sentence, a tab and a label" if tabs else "a label, a space and a sentence"
            raise CorruptData(
                f"{path} line {number}: {line[:80]!r} is not {form} in [0, {classes}). GLUE's test.tsv has no"
                " labels: evaluate on its dev.tsv with evaluated = 'dev'."
            )
        yield LabelledSentence(sentence, int(label), number)
