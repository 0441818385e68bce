"""IMDB: whole film reviews, negative or positive.

Maas et al., "Learning Word Vectors for Sentiment Analysis", ACL 2011. Reviews, with HTML line breaks, are
lower-cased and tokenised into runs of letters and digits, such runs after an apostrophe ("'t"), and single
other characters.
"""

from __future__ import annotations

import re
from pathlib import Path

from assay.service.submission.data_folders import is_ignored
from assay.workers.data.formats import parameters
from assay.workers.data.formats.dataset import CorruptData, MissingData
from assay.workers.data.formats.folders import check_inside, find_folder
from assay.workers.data.formats.sentences import LeastCount, VocabularySource, vocabulary_for
from assay.workers.data.formats.text import Sentences
from assay.workers.data.formats.text_files import read_text

__all__ = ["imdb"]

TASKS = ("sequence",)
PAPER = "Maas et al. 2011, Learning Word Vectors for Sentiment Analysis"
FACTS = {"classes": 2, "words": True, "sentences": True, "pairs": False, "train": 25_000, "test": 25_000}

CLASS_NAMES = ("negative", "positive")
FOLDERS = ("neg", "pos")
BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
WORD = re.compile(r"'?\w+|[^\w\s]")


def imdb(
    root: parameters.Root,
    split: parameters.Split,
    *,
    folder: parameters.Folder = "aclImdb",
    vocabulary: VocabularySource = None,
    least_count: LeastCount = 5,
) -> Sentences:
    """IMDB's film reviews, 2 classes, from FOLDER/{train,test}/{neg,pos}/*.txt.

    Reviews without labels are not read.
    """
    base, where = find_folder(root, folder)
    files = review_files(where, base, split)
    texts = [_text(path) for path, _ in files]
    if vocabulary is not None:
        train: list[str] = []
    else:
        train = texts if split == "train" else [_text(path) for path, _ in review_files(where, base, "train")]
    return Sentences(
        name="imdb",
        class_names=CLASS_NAMES,
        ids=[path.relative_to(where).with_suffix("").as_posix() for path, _ in files],
        sentences=texts,
        labels=[label for _, label in files],
        vocabulary=vocabulary_for(vocabulary, root, train, least_count),
    )


def review_files(where: Path, base: Path, part: str) -> list[tuple[Path, int]]:
    """Reviews of a part with their labels, sorted by name."""
    found: list[tuple[Path, int]] = []
    for label, name in enumerate(FOLDERS):
        for path in _reviews(where / part / name):
            check_inside(path, base)
            found.append((path, label))
    if {label for _, label in found} != {*range(len(FOLDERS))}:
        folders = [f"{one}/{name}" for one in ("train", "test") for name in FOLDERS]
        absent = [name for name in folders if not (where / name).is_dir()]
        empty = [name for name in folders if name not in absent and not _reviews(where / name)]
        named = [(absent, "not there"), (empty, "without a review (*.txt)")]
        shown = "; ".join(f"{state}: {', '.join(names)}" for names, state in named if names)
        raise MissingData(
            f"The data set 'imdb' wants reviews (*.txt) in the folders {', '.join(folders)} of {where}, as in"
            f" aclImdb_v1.tar.gz; {shown}."
        )
    return found


def _reviews(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.txt") if not is_ignored(path.name))


def _text(path: Path) -> str:
    words = WORD.findall(BREAK.sub(" ", read_text(path)).lower())
    if not words:
        raise CorruptData(f"{path} has no words")
    return " ".join(words)
