"""Labelled texts in a local table.

Models with a tokenizer of their own read the text by it; models of this project read its words, between white
space, by the training part's vocabulary.
"""

from __future__ import annotations

from assay.workers.data.formats import parameters
from assay.workers.data.formats.delimited import Quoting
from assay.workers.data.formats.sentences import LeastCount, VocabularySource, vocabulary_for
from assay.workers.data.formats.table_labels import ClassNamesFile, TableClassNames, labels_of
from assay.workers.data.formats.tables import (
    ClassSplits,
    ColumnName,
    EvaluatedPart,
    find_parts,
    rows_of,
    texts_of,
)
from assay.workers.data.formats.text import Sentences

__all__ = ["text_table"]

TASKS = ("sequence",)
FACTS = {"words": True, "sentences": True, "pairs": False}


def text_table(
    root: parameters.Root,
    split: parameters.Split,
    *,
    folder: parameters.TableFolder,
    text: ColumnName = "text",
    label: ColumnName = "label",
    evaluated: EvaluatedPart = None,
    splits: ClassSplits = "auto",
    class_names: TableClassNames = None,
    quoting: Quoting | None = None,
    class_names_file: ClassNamesFile = None,
    vocabulary: VocabularySource = None,
    least_count: LeastCount = 2,
) -> Sentences:
    """Labelled texts from columns of local Parquet, CSV or JSON lines files, or of a folder of `datasets`.

    The id of an example is its part and the number of its row, from 0.

    Args:
        text: column of the texts.
        label: column of the labels: whole numbers or names.
        quoting: of .csv and .tsv files: "double" lets a cell be in double quotes, which then may hold
            delimiters and line breaks; "none" reads quotes as characters of the text. If absent, .csv has
            double quotes and .tsv has none.
    """
    parts = find_parts(root, folder, split, evaluated, splits, "text_table", quoting)
    texts, found = texts_of(parts.chosen, text), labels_of(parts, label, class_names, class_names_file)
    ids = parts.chosen.ids(len(texts))
    rows = rows_of(parts, ids, found.labels)
    learned = parts.training
    train = texts if learned is parts.chosen else texts_of(learned, text) if vocabulary is None else ()
    words = (" ".join(one.split()) for one in train)
    data = Sentences(
        name="text_table",
        class_names=found.class_names,
        ids=[ids[row] for row in rows],
        sentences=[texts[row] for row in rows],
        labels=[found.labels[row] for row in rows],
        vocabulary=vocabulary_for(vocabulary, root, words, least_count),
    )
    data.rarest_classes, data.sorted_classes = found.rarest, found.sorted_classes
    data.files_read = parts.chosen.files(len(texts))
    return data
