"""Random noise on time series, in standard deviations of each feature over the training set.

Every value of every step that exists gets its own draw, keyed by the job's seed and the series' id.

    gaussian    x' = x + scale z,    z ~ N(0, 1) in every value
    uniform     x' = x + scale u,    u ~ U(-1, 1) in every value
"""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Interval
from torch import Tensor

from assay.attacks.randomness import Source
from assay.workers.evaluation.engine.series import Perturbed
from assay.workers.evaluation.engine.shard import Evaluation

__all__ = ["series_noise"]

TASKS = ("series", "series_regression")
TABLE = {"series": "attack", "series_regression": "regression"}
PASSES = ("2", "0")
FACTS = {"random_changes": True}


def series_noise(
    *,
    scale: Annotated[float, "strength", Interval(ge=0, le=100)] = 0.5,
    distribution: Literal["gaussian", "uniform"] = "gaussian",
) -> Evaluation:
    """Accuracy or error on noisy time series.

    Args:
        scale: of the noise, in standard deviations of each feature: the standard deviation of the gaussian,
            or half the width of the uniform distribution.
        distribution: of each value's noise, with mean 0.
    """

    def change(values: Tensor, source: Source) -> Tensor:
        if distribution == "gaussian":
            return values + scale * source.normal(tuple(values.shape))[0].double()
        return values + scale * (2 * source.uniform(tuple(values.shape))[0].double() - 1)

    return Perturbed("series_noise", change)
