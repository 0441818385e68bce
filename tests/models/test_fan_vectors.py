"""The parts of FAN against the numbers of the authors' modules."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from assay.models.attention.softmax import SoftmaxAttention
from assay.models.layers.attention.class_attention import ClassAttentionBlock
from assay.models.layers.channel_processing import ChannelProcessing
from assay.models.weights.key_maps import NVIDIA_FAN

VECTORS = Path(__file__).parents[1] / "vectors"
PREFIX = "blocks.0.attn."


def numbers(name: str) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The weights of the authors' module by name, and the other arrays of the file, in float64."""
    with np.load(VECTORS / f"{name}.npz") as file:
        stored = {key: torch.from_numpy(file[key]).double() for key in file.files}
    weights = {key[2:]: value for key, value in stored.items() if key.startswith("w.")}
    return weights, stored


def load(module: nn.Module, weights: dict[str, Tensor]) -> nn.Module:
    module.double().load_state_dict(weights)
    return module.eval()


def test_token_mixing() -> None:
    theirs, stored = numbers("fan_token_mixing")
    attention = SoftmaxAttention(12, 3, prefix_tokens=0).double().eval()
    for name, ours in attention.state_dict().items():
        for part in NVIDIA_FAN.parts(PREFIX + name):
            part.rows(ours).copy_(theirs.pop(part.name.removeprefix(PREFIX)))
    assert not theirs
    torch.testing.assert_close(attention(stored["x"], grid=(3, 3)), stored["out64"], rtol=0, atol=1e-9)


def test_channel_processing() -> None:
    weights, stored = numbers("fan_channel_processing")
    channels = ChannelProcessing(12, 3, hidden=48)
    channels.norm_v.eps = 1e-6  # that of this vector; the released model has 1e-5 there
    load(channels, weights)
    torch.testing.assert_close(channels(stored["x"], (3, 3)), stored["out64"], rtol=0, atol=1e-9)


def test_class_attention_block() -> None:
    weights, stored = numbers("fan_class_attn_block")
    block = load(ClassAttentionBlock(12, 3, mlp_ratio=4.0, dropout=0.0), weights)
    # The authors' module ran in float32.
    torch.testing.assert_close(block(stored["x"]), stored["out"], rtol=0, atol=2e-6)


@pytest.mark.parametrize("epsilon", [1e-5, 1e-4])
def test_the_epsilon_of_the_channel_norm_shows_in_the_vector(epsilon: float) -> None:
    weights, stored = numbers("fan_channel_processing")
    channels = ChannelProcessing(12, 3, hidden=48)
    channels.norm_v.eps = epsilon
    load(channels, weights)
    assert not torch.allclose(channels(stored["x"], (3, 3)), stored["out64"], rtol=0, atol=1e-9)
