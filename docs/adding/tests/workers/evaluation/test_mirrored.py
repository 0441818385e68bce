"""Mirrored images are classified, not the images as they are."""

from __future__ import annotations

import torch
from torch import nn

from assay.workers.evaluation.mirrored import mirrored
from tests.support.shards import Given, shard


def test_left_is_right() -> None:
    # Two pixels are the logits of two classes: the brighter side is the answer.
    images, labels = torch.tensor([[[[0.9, 0.1]]], [[[0.2, 0.8]]]]), torch.tensor([0, 0])
    data = Given(["a", "b"], classes=2, images=lambda rows: images[list(rows)], labels=labels)
    outcomes = mirrored().measure(shard(nn.Flatten(), data))
    assert outcomes.columns()["correct"] == [False, True]
