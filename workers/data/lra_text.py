"""The Text task of Long Range Arena.

Tay et al., ICLR 2021; Maas et al., ACL 2011. Reviews have their HTML line breaks; a token is a byte of the
UTF-8 text, its id one more, as released. A model reads the first bytes, the papers 4000. The released
pipeline takes the test set as development set; here a recipe sets training reviews aside, or selects on the
test set by name.
"""

from __future__ import annotations

from pathlib import Path

from assay.workers.data.formats import parameters
from assay.workers.data.formats.dataset import CorruptData
from assay.workers.data.formats.folders import find_folder
from assay.workers.data.formats.sequences import ByteTexts
from assay.workers.data.imdb import CLASS_NAMES, review_files

__all__ = ["lra_text"]

TASKS = ("sequence",)
PAPER = "Tay et al. 2021, Long Range Arena; Maas et al. 2011, Learning Word Vectors for Sentiment Analysis"
FACTS = {
    "classes": 2, "channels": 257, "words": False, "sentences": True, "pairs": False, "train": 25_000,
    "test": 25_000, "long_range_task": "text",
}  # fmt: skip


def lra_text(
    root: parameters.Root, split: parameters.Split, *, folder: parameters.Folder = "aclImdb"
) -> ByteTexts:
    """IMDB's film reviews as bytes (Long Range Arena's Text), from FOLDER/{train,test}/{neg,pos}/*.txt."""
    root, where = find_folder(root, folder)
    files = review_files(where, root, split)
    return ByteTexts(
        name="lra_text",
        class_names=CLASS_NAMES,
        ids=[path.relative_to(where).with_suffix("").as_posix() for path, _ in files],
        sentences=[_text(path) for path, _ in files],
        labels=[label for _, label in files],
    )


def _text(path: Path) -> str:
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptData(f"{path} is not UTF-8: {error}") from error
    if not text:
        raise CorruptData(f"{path} is empty")
    return text
