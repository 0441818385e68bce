"""Labelled multivariate time series in memory: each has its own number of steps.

A batch is a tensor (B, F + 1, T) of raw values; the last channel is 1 where a step exists and 0 where a row's
end is padded. T is the model's length, so that no result depends on the batch's other series.

Legend: n series, F features, B requested series, T_i steps of series i, T steps of a row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Protocol, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.workers.data.formats.dataset import ExampleSet, Listed, ListedSet, check_length, checked_indices

Values = NDArray[np.float32]
SMALLEST_STD = 1e-8  # A constant feature is not divided by rounding errors


class SeriesSet(ExampleSet, Protocol):
    """Labelled time series; `channels` is F."""

    @property
    def labels(self) -> Tensor:
        """int64 (n,), in [0, classes)."""

    @property
    def mean(self) -> tuple[float, ...]:
        """Of each feature over all steps of the training part, (F,)."""

    @property
    def std(self) -> tuple[float, ...]:
        """Standard deviation of each feature, likewise, above 0."""

    @property
    def longest(self) -> int:
        """The largest T_i of all parts: what a model must read."""

    @property
    def lengths(self) -> Mapping[str, int]:
        """T_i by example id."""

    def images(self, indices: Sequence[int], size: int) -> Tensor:
        """Raw series and their steps, float32 (len(indices), F + 1, size); named as for images."""


class Series(ListedSet):
    """Time series in memory."""

    task = "series"
    size = None

    def __init__(
        self,
        *,
        values: Sequence[Values],
        labels: Sequence[int],
        statistics: tuple[tuple[float, ...], tuple[float, ...]],
        longest: int | None = None,
        published: int | None = None,
        **listed: Unpack[Listed],
    ) -> None:
        """`values`: float32 (T_i, F) each, finite; `statistics`: the training part's mean and deviation."""
        super().__init__(**listed)
        assert len(self) == len(values) == len(labels)
        self.labels = torch.tensor(list(labels), dtype=torch.int64)
        self.mean, self.std = statistics
        self.channels = len(self.mean)
        self.lengths = {identifier: len(one) for identifier, one in zip(self.ids, values, strict=True)}
        self.longest = max([longest or 1, *self.lengths.values()])
        self.published = published
        self._values = [np.ascontiguousarray(one, dtype=np.float32) for one in values]

    def images(self, indices: Sequence[int], size: int) -> Tensor:
        """Raw series and their steps, float32 (len(indices), F + 1, size)."""
        chosen = checked_indices(indices, len(self))
        rows = torch.zeros(len(chosen), self.channels + 1, size)  # (B, F + 1, T)
        for row, index in zip(rows, chosen, strict=True):
            values = self._values[index]
            if len(values) > size:
                check_length(self, size)
            row[:-1, : len(values)] = torch.from_numpy(values).T
            row[-1, : len(values)] = 1.0
        return rows

    def content_sha256(self) -> str:
        """Hash of ids, labels and values."""
        digest = hashlib.sha256(f"{self.name} {self.class_names} {self.mean} {self.std}\n".encode())
        for identifier, label, values in zip(self.ids, self.labels.tolist(), self._values, strict=True):
            digest.update(f"{identifier}\n{label}\n{values.shape}\n".encode())
            digest.update(values.astype("<f4").tobytes())
        return digest.hexdigest()


class TargetSeries(Series):
    """Time series with a target each in its own unit, float64 (n,): a model's output "target"."""

    task = "series_regression"

    def __init__(
        self,
        *,
        name: str,
        ids: Sequence[str],
        values: Sequence[Values],
        targets: Sequence[float],
        statistics: tuple[tuple[float, ...], tuple[float, ...]],
        training_targets: Sequence[float],
        longest: int | None = None,
    ) -> None:
        """`training_targets` give `target_mean`, and `target_std` with n - 1, 1 where all are equal."""
        super().__init__(
            name=name,
            class_names=("target",),
            ids=ids,
            values=values,
            labels=[0] * len(targets),
            statistics=statistics,
            longest=longest,
        )
        self.labels = torch.tensor(list(targets), dtype=torch.float64)
        known = torch.tensor(list(training_targets), dtype=torch.float64)
        self.target_mean = float(known.mean())
        std = float(known.std()) if len(known) > 1 else 0.0
        self.target_std = std if std > SMALLEST_STD else 1.0
        self.target_statistics = (self.target_mean, self.target_std)

    def content_sha256(self) -> str:
        """Hash of ids, targets, values and the targets' statistics."""
        whole = f"{super().content_sha256()} {self.target_mean!r} {self.target_std!r}"
        return hashlib.sha256(whole.encode()).hexdigest()


def statistics_of(values: Sequence[Values]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each feature over all steps of all series, without NaN.

    The deviation divides by steps - 1, as in the released code of mvts_transformer; a constant feature has
    deviation 1, a feature without values mean 0.
    """
    steps = np.concatenate([one.astype(np.float64) for one in values])  # (sum of T_i, F)
    known = ~np.isnan(steps)
    count = known.sum(axis=0)
    mean = np.where(known, steps, 0.0).sum(axis=0) / np.maximum(count, 1)
    square = np.where(known, (steps - mean) ** 2, 0.0).sum(axis=0)
    std = np.sqrt(square / np.maximum(count - 1, 1))
    std = np.where(std > SMALLEST_STD, std, 1.0)
    return tuple(mean.tolist()), tuple(std.tolist())


def filled(values: Values, mean: Sequence[float]) -> Values:
    """A series (T_i, F) without NaN: linear between known steps, constant outside; all NaN: `mean`."""
    missing = np.isnan(values)
    if not missing.any():
        return values
    whole, steps = values.copy(), np.arange(len(values))
    for feature in np.flatnonzero(missing.any(axis=0)).tolist():
        gaps = missing[:, feature]
        known = steps[~gaps]
        whole[gaps, feature] = (
            np.interp(steps[gaps], known, values[known, feature]) if len(known) else mean[feature]
        )
    return whole
