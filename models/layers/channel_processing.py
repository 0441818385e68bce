"""The channel half of a FAN block: an MLP with convolutions; attention gates its channels.

Zhou et al., "Understanding the robustness in vision transformers", ICML 2022, as in the released code:
for tokens x, channel d of head h of the output is

    temperature_h sigmoid(sum_n q_nhd k_nh) v_nhd

    q = softmax over tokens of Linear(x)
    k = softmax over tokens of x, then the mean over the channels of the head
    v = LayerNorm(MLP(x))

R and S = rows and columns of tokens.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from assay.models.layers.heads import check_heads

VALUE_NORM_EPSILON = 1e-5  # this norm only; the others of the released model have 1e-6


class DepthwiseConvolutions(nn.Module):
    """Two depthwise 3 x 3 convolutions with GELU and batch normalisation between them, on tokens (B, N, C).

    Initialised as released: normal with variance 2 / 9, biases zero.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, kernel_size=3, padding=1, groups=width)
        self.act = nn.GELU()
        self.bn = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, kernel_size=3, padding=1, groups=width)
        for convolution in (self.conv1, self.conv2):
            nn.init.normal_(convolution.weight, std=math.sqrt(2 / 9))
            assert convolution.bias is not None
            nn.init.zeros_(convolution.bias)

    def forward(self, x: Tensor, grid: tuple[int, int]) -> Tensor:
        """Convolve tokens (B, N, C) laid out row by row on a grid of (R, S) = `grid`."""
        image = x.transpose(1, 2).unflatten(2, grid)  # (B, C, R, S)
        convolved: Tensor = self.conv2(self.bn(self.act(self.conv1(image))))
        return convolved.flatten(2).transpose(1, 2)


class ConvolutionalMlp(nn.Module):
    """Linear to the hidden width, u + gamma DepthwiseConvolutions(u), Linear back: (B, N, C) to (B, N, C)."""

    def __init__(self, width: int, hidden: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.dwconv = DepthwiseConvolutions(hidden)
        self.gamma = nn.Parameter(torch.ones(hidden))
        self.fc2 = nn.Linear(hidden, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, grid: tuple[int, int]) -> Tensor:
        """Apply the MLP to (B, N, C)."""
        hidden: Tensor = self.fc1(x)
        hidden = hidden + self.dropout(self.gamma * self.dwconv(hidden, grid))
        output: Tensor = self.dropout(self.fc2(hidden))
        return output


class ChannelProcessing(nn.Module):
    """Gates an MLP's channels (B, N, C) by their attention. ValueError: `heads` does not divide `width`."""

    def __init__(self, width: int, heads: int, hidden: int, dropout: float = 0.0) -> None:
        super().__init__()
        check_heads(width, heads)
        self.heads = heads
        self.q = nn.Linear(width, width)
        self.temperature = nn.Parameter(torch.ones(heads, 1, 1))
        self.mlp_v = ConvolutionalMlp(width, hidden, dropout)
        self.norm_v = nn.LayerNorm(width, eps=VALUE_NORM_EPSILON)

    def forward(self, x: Tensor, grid: tuple[int, int]) -> Tensor:
        """Process tokens (B, N, C) laid out row by row on a grid of (R, S) = `grid`."""
        values: Tensor = self.norm_v(self.mlp_v(x, grid))
        return self.gate(x)[:, None] * values

    def gate(self, x: Tensor) -> Tensor:
        """Gate of each channel, (B, C), from tokens (B, N, C)."""
        queries = self.q(x).softmax(dim=1).unflatten(2, (self.heads, -1))  # (B, N, H, D)
        keys = x.softmax(dim=1).unflatten(2, (self.heads, -1)).mean(dim=-1)  # (B, N, H)
        similarity = torch.einsum("bnhd,bnh->bhd", queries, keys)
        return (similarity.sigmoid() * self.temperature.squeeze(-1)).flatten(1)
