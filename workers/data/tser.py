"""The archive of time series extrinsic regression, or any other set of `.ts` files whose targets are numbers.

Tan et al. 2020, "Monash University, UEA, UCR Time Series Extrinsic Regression Archive"; Nguyen et al. 2023
("A Primal-Dual Framework for Transformers and Neural Networks", table 8) have six of its sets:
AppliancesEnergy, BenzeneConcentration, BeijingPM10Quality, BeijingPM25Quality, LiveFuelMoistureContent and
IEEEPPG. Missing numbers are filled as in `workers/data/uea.py`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import MaxLen, MinLen

from assay.workers.data.formats import parameters
from assay.workers.data.formats.dataset import CorruptData
from assay.workers.data.formats.folders import find_folder
from assay.workers.data.formats.series import TargetSeries, filled, statistics_of
from assay.workers.data.formats.ts_files import find_file, read_series
from assay.workers.data.uea import NAME

__all__ = ["tser"]

TASKS = ("series_regression",)
PAPER = "Tan et al. 2020, Monash University, UEA, UCR Time Series Extrinsic Regression Archive"
FACTS = {"series": True, "classes": 1}


def tser(
    root: parameters.Root,
    split: Literal["train", "test"],
    *,
    folder: parameters.Folder = "tser",
    dataset: Annotated[str, "file_name", MinLen(1), MaxLen(100)] = "AppliancesEnergy",
) -> TargetSeries:
    """Time series with targets of FOLDER/DATASET/DATASET_{TRAIN,TEST}.ts, or of these files in FOLDER itself.

    Args:
        split: which file: "train" reads DATASET_TRAIN.ts, "test" DATASET_TEST.ts.
        dataset: name of the set, such as AppliancesEnergy, IEEEPPG or any other whose files are there.
    """
    if not NAME.fullmatch(dataset):
        raise ValueError(f"dataset is {dataset[:100]!r}; allowed: letters, digits, hyphens and underscores")
    root, where = find_folder(root, folder)
    both = {part: find_file(where, dataset, part, root, "tser") for part in ("TRAIN", "TEST")}
    train, test = (read_series(both[part], regression=True) for part in ("TRAIN", "TEST"))
    features, wanted = test.values[0].shape[1], train.values[0].shape[1]
    if features != wanted:
        raise CorruptData(
            f"{both['TEST']}: its series have {features} features, the training file's have {wanted}"
        )
    statistics = statistics_of(train.values)
    chosen = train if split == "train" else test
    return TargetSeries(
        name="tser",
        ids=[f"{dataset}/{split}/{number:06d}" for number in range(len(chosen.targets))],
        values=[filled(values, statistics[0]) for values in chosen.values],
        targets=chosen.targets,
        statistics=statistics,
        training_targets=train.targets,
        longest=max(len(values) for part in (train, test) for values in part.values),
    )
