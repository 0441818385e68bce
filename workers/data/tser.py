"""The archive of time series extrinsic regression.

Nguyen et al. 2023 ("A Primal-Dual Framework for Transformers and Neural Networks", table 8) have
AppliancesEnergy, BenzeneConcentration, BeijingPM10Quality, BeijingPM25Quality, LiveFuelMoistureContent and
IEEEPPG. Missing numbers are filled as in `workers/data/uea.py`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import MaxLen, MinLen

from assay.workers.data.formats import parameters
from assay.workers.data.formats.series import TargetSeries, filled, statistics_of
from assay.workers.data.formats.ts_files import read_both

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
    train, test = read_both(root, folder, dataset, "tser", regression=True)
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
