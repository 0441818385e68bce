"""Documents for language models in a local table.

The documents are one long text with `separator` after each. Models with a tokenizer of their own read that
text; models of this project read its words, between white space, and `<eos>` at the end of each line, by the
training part's vocabulary.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Annotated

from annotated_types import Interval, MaxLen

from assay.service.contract.findings.data_findings import FileRead
from assay.workers.data.formats import parameters
from assay.workers.data.formats.delimited import Quoting
from assay.workers.data.formats.tables import ColumnName, EvaluatedPart, Splits, find_parts, rows_of, texts_of
from assay.workers.data.formats.text import Documents
from assay.workers.data.formats.vocabulary import END_OF_LINE, PAD_WORD, Vocabulary

__all__ = ["document_table"]

TASKS = ("language",)
FACTS = {"words": True, "documents": True}


def document_table(
    root: parameters.Root,
    split: parameters.Split,
    *,
    folder: parameters.TableFolder,
    text: ColumnName = "text",
    evaluated: EvaluatedPart = None,
    splits: Splits = "auto",
    quoting: Quoting | None = None,
    separator: Annotated[str, MaxLen(20)] = "\n\n",
    least_count: Annotated[int, Interval(ge=1, le=1000)] = 1,
) -> TableDocuments:
    """Documents from a column of local Parquet, CSV or JSON lines files, or of a folder of `datasets`.

    The id of a document is its part and the number of its row, from 0. Empty rows have no words but `<eos>`.

    Args:
        text: column of the documents.
        splits: of a folder of one part, without a name or called train: "auto" keeps a fifth of the rows,
            by hash, for evaluation; "all" takes every row for either.
        quoting: of .csv and .tsv files, as in `text_table`: "double" or "none"; if absent, .csv has double
            quotes and .tsv has none.
        separator: what follows each document in the long text.
        least_count: for models of this project: words that are rarer in the training part are unknown.
    """
    parts = find_parts(root, folder, split, evaluated, splits, "document_table", quoting)
    texts = texts_of(parts.chosen, text)
    ids = parts.chosen.ids(len(texts))
    rows = rows_of(parts, ids, [0] * len(ids))
    learned = parts.training
    train = texts if learned is parts.chosen else texts_of(learned, text)
    counts = Counter(word for one in train for word in words_of(one))
    counts.pop(PAD_WORD, None)
    data = TableDocuments(
        [ids[row] for row in rows],
        [texts[row] + separator for row in rows],
        Vocabulary.counted(counts, least=least_count),
    )
    data.files_read = parts.chosen.files(len(texts))
    return data


class TableDocuments(Documents):
    """Documents in memory."""

    files_read: list[FileRead] | None = None

    def __init__(self, ids: Sequence[str], texts: Sequence[str], vocabulary: Vocabulary) -> None:
        super().__init__(
            name="document_table", ids=ids, read=lambda index: words_of(texts[index]), vocabulary=vocabulary
        )
        self._texts = texts

    def text(self, index: int) -> str:
        """A document as it is, with its separator."""
        return self._texts[index]

    def content_sha256(self) -> str:
        """Hash of ids, texts and vocabulary."""
        digest = hashlib.sha256(f"{self.name} {self.vocabulary.sha256}\n".encode())
        for identifier, text in zip(self.ids, self._texts, strict=True):
            digest.update(f"{identifier}\n{len(text)}\n".encode() + text.encode("utf-8", "surrogatepass"))
        return digest.hexdigest()


def words_of(text: str) -> list[str]:
    """The words of a text's lines, each line with `<eos>` behind it."""
    return [word for line in text.strip("\n").split("\n") for word in (*line.split(), END_OF_LINE)]
