"""WikiText-2 and WikiText-103: tokenised articles of the English Wikipedia.

Merity et al., "Pointer Sentinel Mixture Models", ICLR 2017. As in the field's code (AWD-LSTM, Transformer-XL,
lmtool-fwp), white space separates words, and every line, even an empty line, ends with `<eos>`, predicted and
counted like any word: the test part has 245 569 words. `<unk>` in the files is the unknown word, as are words
missing in the training part.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from assay.workers.data.formats import parameters
from assay.workers.data.formats.dataset import CorruptData, MissingData
from assay.workers.data.formats.folders import check_inside, find_folder
from assay.workers.data.formats.text import Documents
from assay.workers.data.formats.vocabulary import END_OF_LINE, PAD_WORD, Vocabulary

__all__ = ["wikitext"]

TASKS = ("language",)
PAPER = "Merity et al. 2017, Pointer Sentinel Mixture Models"
FACTS = {
    "words": True,
    "documents": True,
    # Hashes of WikiText-2's parts, and its vocabulary's size, which tells that a folder has it. Measured on
    # the authors' valid and test files, and the training file's articles in another order: a vocabulary is
    # sorted by counts, then words.
    "content": {
        "test": "49edef617f4624266cba95b1ba9ed0f82dbe04e542c3f8cb2bb1a88d4c528dd2",
        "valid": "420403401557df424b3ad4805c445b8936f08cfe19f05ce5dac9727e9325b579",
    },
    "content_classes": 33_279,
}

PARTS = ("train", "valid", "test")
# Such as " = Robert Boulter = "; sections have " = = ... = = ".
TITLE = re.compile(rb" = [^=\s](.*[^=\s])? = \s*")


def wikitext(
    root: parameters.Root,
    split: Literal["train", "test"],
    *,
    folder: parameters.Folder = "wikitext-103",
    evaluated: Literal["test", "valid"] = "test",
) -> Documents:
    """WikiText-2 or WikiText-103 from FOLDER/wiki.{train,valid,test}.tokens; a document is an article.

    A document starts at a first-level heading between empty lines. The training part gives the
    vocabulary of every split. The word `<eos>` ends every line, and counts.

    Args:
        split: "train" reads `wiki.train.tokens`.
        evaluated: which part is read for evaluation.
    """
    root, where = find_folder(root, folder)
    part = "train" if split == "train" else evaluated
    paths = {name: where / f"wiki.{name}.tokens" for name in PARTS}
    missing = [paths[name].name for name in ("train", part) if not paths[name].is_file()]
    if missing:
        raise MissingData(
            f"{' and '.join(dict.fromkeys(missing))} not found in {where}. The data set 'wikitext' wants"
            f" {', '.join(path.name for path in paths.values())} there, as in wikitext-2-v1.zip and"
            " wikitext-103-v1.zip (not the raw archives); the training part is read for its words."
        )
    for name in ("train", part):
        check_inside(paths[name], root)
    places = list(documents(paths[part]))
    return Documents(
        name="wikitext",
        ids=[f"{part}/{number:05d}" for number in range(len(places))],
        read=lambda index: _words(paths[part], *places[index]),
        vocabulary=vocabulary_of(paths["train"]),
    )


def documents(path: Path) -> Iterator[tuple[int, int]]:
    """Byte ranges (first, end) of documents; text before the first heading is the first's."""
    start, here, previous, title = 0, 0, b"", None
    with path.open("rb") as file:
        for line in file:
            blank = not line.strip()
            # A heading only if the next line is empty, too.
            if title is not None and blank and title > start and _has_title(path, start, title):
                yield start, title
                start = title
            title = here if TITLE.fullmatch(line) and not previous.strip() else None
            here += len(line)
            previous = line
    if here == 0:
        raise CorruptData(f"{path} is empty")
    yield start, here


def _has_title(path: Path, start: int, stop: int) -> bool:
    if start > 0:
        return True
    with path.open("rb") as file:
        return bool(file.read(stop).strip())


def vocabulary_of(path: Path) -> Vocabulary:
    """Vocabulary of a file, with the end of a line, by frequency."""
    counts: Counter[str] = Counter()
    try:
        with path.open(encoding="utf-8", newline="\n") as file:
            for line in file:
                counts.update(line.split())
                counts[END_OF_LINE] += 1
        return Vocabulary.counted(counts)
    except UnicodeDecodeError as error:
        raise CorruptData(f"{path} is not UTF-8: {error}") from error
    except ValueError as error:
        raise CorruptData(f"{path}: {error} ({PAD_WORD!r})") from error


def _words(path: Path, start: int, stop: int) -> list[str]:
    with path.open("rb") as file:
        file.seek(start)
        raw = file.read(stop - start)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptData(f"{path} is not UTF-8: {error}") from error
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [word for line in lines for word in (*line.split(), END_OF_LINE)]
