"""Batch normalisation over a batch shared by several processes.

Ioffe and Szegedy, "Batch Normalization", ICML 2015, algorithm 1: mean and variance of the whole batch. Not
torch's `SyncBatchNorm`, which does not support the CPU. In eval mode, attacks included, a layer is torch's
own.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


def share_batch_norms(model: nn.Module) -> None:
    """Normalise by the batch of all processes; names, weights and buffers stay."""
    for name, child in model.named_children():
        if isinstance(child, _BatchNorm):
            setattr(model, name, SharedBatchNorm(child))
        else:
            share_batch_norms(child)


def has_batch_norm(model: nn.Module) -> bool:
    """Whether an example's outputs in training depend on its pass."""
    return any(isinstance(module, _BatchNorm) for module in model.modules())


class SharedBatchNorm(_BatchNorm):
    """Replacement of a batch normalisation that takes over its weights and buffers."""

    def __init__(self, other: _BatchNorm) -> None:
        super().__init__(
            other.num_features, other.eps, other.momentum, other.affine, other.track_running_stats
        )
        self.weight, self.bias = other.weight, other.bias
        self.running_mean, self.running_var = other.running_mean, other.running_var
        self.num_batches_tracked = other.num_batches_tracked
        self.train(other.training)

    def _check_input_dim(self, input: Tensor) -> None:  # noqa: A002 (torch's name)
        if input.dim() < 2:
            raise ValueError(f"batch normalisation is for (batch, channels, ...): got {tuple(input.shape)}")

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (B, C, ...) by mean and variance of all processes' batches, in training."""
        if not self.training:
            plain: Tensor = super().forward(x)
            return plain
        self._check_input_dim(x)
        values = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        over = [dimension for dimension in range(x.dim()) if dimension != 1]
        wide = (1, -1) + (1,) * (x.dim() - 2)
        count = values.new_tensor([values.numel() // values.shape[1]])
        sums, n = _total(torch.cat([values.sum(over), count])).split([values.shape[1], 1])
        mean = sums / n.detach()
        centred = values - mean.view(wide)
        variance = _total((centred * centred).sum(over)) / n.detach()
        self._remember(mean.detach(), variance.detach() * (n / (n - 1).clamp(min=1)).detach())
        normalized = centred * (variance + self.eps).rsqrt().view(wide)
        if self.affine:
            normalized = normalized * self.weight.view(wide) + self.bias.view(wide)
        output: Tensor = normalized.to(x.dtype)
        return output

    @torch.no_grad()
    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        if self.running_mean is None or self.running_var is None:
            return
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        # Without momentum torch keeps the mean over all batches.
        rate = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean), rate)
        self.running_var.lerp_(variance.to(self.running_var), rate)


def _total(tensor: Tensor) -> Tensor:
    total: Tensor = _Total.apply(tensor)
    return total


class _Total(torch.autograd.Function):
    """All-reduce sum; each summand affects every process's loss, so gradients are summed too."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        del ctx
        total = tensor.clone()
        torch.distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        del ctx
        total = gradients[0].clone()
        torch.distributed.all_reduce(total)
        return total
