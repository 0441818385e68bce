"""The UEA archive of multivariate time series classification, or any other set of `.ts` files.

`TESTED` names the ten sets of Chen et al. 2023 ("Primal-Attention", table 1) and Nguyen et al. 2023 ("A
Primal-Dual Framework for Transformers and Neural Networks", table 1).

Missing numbers are filled as in the released code of mvts_transformer: linear between the nearest known steps
of the series, constant beyond. Deviation: a feature without a known value in a series, undefined in that
code, gets its training mean.
"""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import MaxLen, MinLen

from assay.workers.data.formats import parameters
from assay.workers.data.formats.series import Series, filled, statistics_of
from assay.workers.data.formats.ts_files import read_both

__all__ = ["uea"]

TASKS = ("series",)
PAPER = "Bagnall et al. 2018, The UEA multivariate time series classification archive, 2018"
FACTS = {"series": True}

# Test examples, as published.
TESTED = {
    "EthanolConcentration": 263, "FaceDetection": 3524, "Handwriting": 850, "Heartbeat": 205,
    "JapaneseVowels": 370, "PEMS-SF": 173, "SelfRegulationSCP1": 293, "SelfRegulationSCP2": 180,
    "SpokenArabicDigits": 2199, "UWaveGestureLibrary": 320, "BasicMotions": 40,
}  # fmt: skip


def uea(
    root: parameters.Root,
    split: Literal["train", "test"],
    *,
    folder: parameters.Folder = "uea",
    dataset: Annotated[str, "file_name", MinLen(1), MaxLen(100)] = "JapaneseVowels",
) -> Series:
    """Time series of FOLDER/DATASET/DATASET_{TRAIN,TEST}.ts, or of these files in FOLDER itself.

    Args:
        split: which file: "train" reads DATASET_TRAIN.ts, "test" DATASET_TEST.ts.
        dataset: name of the set, such as JapaneseVowels, PEMS-SF or any other whose files are there.
    """
    train, test = read_both(root, folder, dataset, "uea")
    statistics = statistics_of(train.values)
    chosen = train if split == "train" else test
    renumber = [train.class_names.index(name) for name in chosen.class_names]
    return Series(
        name="uea",
        class_names=train.class_names,
        ids=[f"{dataset}/{split}/{number:06d}" for number in range(len(chosen.labels))],
        values=[filled(values, statistics[0]) for values in chosen.values],
        labels=[renumber[label] for label in chosen.labels],
        statistics=statistics,
        longest=max(len(values) for part in (train, test) for values in part.values),
        published=TESTED.get(dataset) if split == "test" else None,
    )
