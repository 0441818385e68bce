"""Channel processing against its formula in NumPy; the authors' numbers are in test_fan_vectors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from timm.models.xcit import LPI

from assay.models.layers.channel_processing import ChannelProcessing, DepthwiseConvolutions
from tests.support.weights import disturb


@pytest.fixture
def channels() -> ChannelProcessing:
    made = ChannelProcessing(12, 3, hidden=20).double()
    disturb(made)
    return made.eval()


def softmax(values: np.ndarray) -> np.ndarray:
    """Over the first axis."""
    powers = np.exp(values - values.max(axis=0))
    return powers / powers.sum(axis=0)


def explicit_gate(channels: ChannelProcessing, x: np.ndarray) -> np.ndarray:
    """The gate of one image, (C,), channel by channel."""
    weights = {name: value.detach().numpy() for name, value in channels.state_dict().items()}
    queries = softmax(x @ weights["q.weight"].T + weights["q.bias"])  # (N, C)
    keys = softmax(x)
    size = x.shape[1] // channels.heads
    gate = np.zeros(x.shape[1])
    for channel in range(x.shape[1]):
        head = channel // size
        key = keys[:, head * size : (head + 1) * size].mean(axis=1)
        gate[channel] = weights["temperature"][head, 0, 0] / (1 + np.exp(-queries[:, channel] @ key))
    return gate


def test_gate_equals_the_formula(channels: ChannelProcessing) -> None:
    x = 3 * torch.randn(2, 15, 12, dtype=torch.float64)
    gate = channels.gate(x).detach().numpy()
    for image in range(2):
        np.testing.assert_allclose(gate[image], explicit_gate(channels, x[image].numpy()), atol=1e-12)


def test_output_is_the_gate_times_the_normalised_mlp(channels: ChannelProcessing) -> None:
    x = torch.randn(2, 15, 12, dtype=torch.float64)
    mlp = channels.mlp_v
    hidden = mlp.fc1(x)
    image = hidden.transpose(1, 2).reshape(2, 20, 3, 5)
    local = mlp.dwconv.conv2(mlp.dwconv.bn(torch.nn.functional.gelu(mlp.dwconv.conv1(image))))
    values = mlp.fc2(mlp.gamma * local.flatten(2).transpose(1, 2) + hidden)
    normed = torch.nn.functional.layer_norm(values, (12,), channels.norm_v.weight, channels.norm_v.bias, 1e-5)
    expected = normed * channels.gate(x)[:, None]
    torch.testing.assert_close(channels(x, (3, 5)), expected, rtol=0, atol=1e-12)


def test_gate_does_not_depend_on_the_order_of_the_tokens(channels: ChannelProcessing) -> None:
    x = torch.randn(2, 15, 12, dtype=torch.float64)
    order = torch.randperm(15, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(channels.gate(x[:, order]), channels.gate(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("training", [False, True])
def test_depthwise_convolutions_equal_timms_with_its_weights(training: bool) -> None:
    theirs = LPI(12).double().train(training)
    disturb(theirs)
    ours = DepthwiseConvolutions(12).double().train(training)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 15, 12, dtype=torch.float64)
    torch.testing.assert_close(ours(x, (3, 5)), theirs(x, 3, 5), rtol=0, atol=1e-12)


def test_initialisation_of_the_convolutions_is_as_released() -> None:
    convolutions = DepthwiseConvolutions(768)
    for convolution in (convolutions.conv1, convolutions.conv2):
        assert convolution.weight.std().item() == pytest.approx((2 / 9) ** 0.5, rel=0.05)
        assert not convolution.bias.any()


def test_dropout_acts_in_training_only() -> None:
    made = ChannelProcessing(12, 3, hidden=20, dropout=0.5)
    x = torch.randn(2, 15, 12)
    made.mlp_v.dwconv.eval()
    assert not torch.equal(made(x, (3, 5)), made(x, (3, 5)))
    made.eval()
    assert torch.equal(made(x, (3, 5)), made(x, (3, 5)))


def test_heads_must_divide_width() -> None:
    with pytest.raises(ValueError, match="heads must divide width: got width 10 and heads 3"):
        ChannelProcessing(10, 3, hidden=20)
