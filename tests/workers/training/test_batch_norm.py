"""Batch normalisation over the batch of all processes, by one process; several are in `test_processes`."""

from __future__ import annotations

import torch
from torch import nn

from assay.workers.training.batch_norm import SharedBatchNorm, share_batch_norms


def test_in_eval_mode_a_shared_batch_norm_is_torchs_own() -> None:
    plain = nn.Sequential(nn.Sequential(nn.BatchNorm2d(3)), nn.BatchNorm1d(3)).eval()
    inner, flat = plain[0], plain[1]
    assert isinstance(inner, nn.Sequential)
    images, expected = torch.randn(4, 3, 2, 2), None
    expected = inner(images)
    weights = [id(weight) for weight in plain.parameters()]
    share_batch_norms(plain)
    assert isinstance(inner[0], SharedBatchNorm)
    assert plain[1] is not flat
    assert [id(weight) for weight in plain.parameters()] == weights
    assert torch.equal(inner(images), expected)
