"""`SeriesModel` and `RegressionModel`, the wrappers of models of time series.

B = batch, F = features, T = steps of a row.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from assay.models.layers.layers import Classifier


class SeriesModel(Classifier):
    """`Classifier` of raw time series: standardises each feature, then applies the backbone.

    A row (F + 1, T) has F features and as its last channel 1 where a step exists, 0 where it is padding. Mean
    and standard deviation of each feature over the training set, (F,), are part of the state dict. Attacks
    work on the input of `backbone`, (B, F + 1, T) to logits (B, classes): epsilon is in these standard
    deviations.
    """

    def __init__(self, backbone: nn.Module, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__(backbone, mean, std)
        self.mean, self.std = self.mean.view(1, -1, 1), self.std.view(1, -1, 1)  # (1, F, 1)

    def normalize(self, pixels: Tensor) -> Tensor:
        """Standardise raw series (B, F + 1, T): padding to 0, last channel kept. A ValueError: other F."""
        features = self.mean.shape[1]
        if pixels.dim() != 3 or pixels.shape[1] != features + 1:
            raise ValueError(
                f"series must be (batch, {features} features and the channel of existing steps, steps):"
                f" got {tuple(pixels.shape)}"
            )
        values, present = split_steps(pixels)
        standardised = (values - self.mean) / self.std
        return torch.cat([standardised.masked_fill(~present[:, None], 0.0), pixels[:, -1:]], dim=1)


class RegressionModel(SeriesModel):
    """`SeriesModel` that predicts a number in the unit of the training targets.

    Mean and standard deviation of the training targets are part of the state dict. The backbone predicts the
    standardised target, (B, 1).
    """

    target_mean: Tensor
    target_std: Tensor

    def __init__(
        self,
        backbone: nn.Module,
        mean: Sequence[float],
        std: Sequence[float],
        target_mean: float,
        target_std: float,
    ) -> None:
        super().__init__(backbone, mean, std)
        if not target_std > 0:
            raise ValueError(f"target_std must be above 0: got {target_std}")
        self.register_buffer("target_mean", torch.tensor(target_mean))
        self.register_buffer("target_std", torch.tensor(target_std))

    def forward(self, pixels: Tensor) -> Tensor:
        """Predictions (B, 1), in the target's unit, of raw series (B, F + 1, T)."""
        return self.in_units(super().forward(pixels))

    def in_units(self, outputs: Tensor) -> Tensor:
        """Standardised targets, of any shape, in the target's unit and dtype of the statistics."""
        return outputs.to(self.target_mean.dtype) * self.target_std + self.target_mean


def split_steps(series: Tensor) -> tuple[Tensor, Tensor]:
    """The features (B, F, T) of rows (B, F + 1, T), and which steps exist, bool (B, T).

    Features at padded steps are 0, and no gradient reaches them or the last channel.
    """
    present = series[:, -1] > 0.5  # (B, T)
    return series[:, :-1].masked_fill(~present[:, None], 0.0), present
