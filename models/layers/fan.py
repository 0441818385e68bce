"""The fully attentional network (FAN): attention mixes the tokens, and attention gates the channels.

Zhou et al., "Understanding the robustness in vision transformers", ICML 2022, the FAN-ViT: a convolutional
stem, a Fourier position encoding, FAN blocks on the patches, two class-attention blocks where the class token
joins them, LayerNorm, and a head on the class token. Initialised as released: linear layers and the class
token truncated normal with standard deviation 0.02, their biases zero, depthwise convolutions as in
`channel_processing`, other convolutions PyTorch's default.

P = patches, N = 1 + P tokens, R and S = rows and columns of tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, ClassVar

import torch
from annotated_types import doc
from torch import Tensor, nn

from assay.models.layers import parameters
from assay.models.layers.attention.class_attention import ClassAttentionBlock
from assay.models.layers.channel_processing import ChannelProcessing
from assay.models.layers.conv_stem import ConvStem
from assay.models.layers.heads import AttentionFactory, make_attention
from assay.models.layers.layers import LAYER_NORM_EPSILON, ClassTokenHead, DropPath

FanWidth = Annotated[parameters.Width, doc("width of the tokens, at least 8.")]
FanDepth = Annotated[parameters.Depth, doc("number of FAN blocks; two class-attention blocks follow them.")]
FanHeads = Annotated[parameters.Heads, doc("heads for tokens and for channels; must divide `width`.")]
FanDropPath = Annotated[parameters.DropRate, doc("rate of stochastic depth, the same in every FAN block.")]
CLASS_BLOCKS = 2


FEATURES = 32  # for the row, and as many for the column
TEMPERATURE = 10_000.0
EPSILON = 1e-6  # as released: the last position is short of a full turn by this


class FourierPositions(nn.Module):
    """Sines and cosines of the row and the column in a grid of any size, projected to the token width.

    Positions are fractions of the grid's sides. Frequencies: Vaswani et al., "Attention is all you need",
    NeurIPS 2017, section 3.5; in two dimensions, with a learned projection: El-Nouby et al., "XCiT:
    Cross-covariance image transformers", NeurIPS 2021. Names and layouts of the weights are XCiT's.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.token_projection = nn.Conv2d(2 * FEATURES, width, kernel_size=1)

    def forward(self, grid: tuple[int, int]) -> Tensor:
        """Encoding (1, R * S, C) of a grid of R rows and S columns, row by row."""
        weight = self.token_projection.weight
        rows, columns = (waves(places, weight.device) for places in grid)
        both = (rows[:, None].expand(*grid, FEATURES), columns[None].expand(*grid, FEATURES))
        features = torch.cat(both, dim=-1).permute(2, 0, 1)  # (64, R, S)
        encoding: Tensor = self.token_projection(features[None].to(weight.dtype))  # (1, C, R, S)
        return encoding.flatten(2).transpose(1, 2)


def waves(places: int, device: torch.device | None = None) -> Tensor:
    """Interleaved sines and cosines of positions 1 to `places` of an axis: (places, 32), float32 as released.

    The angle of position i is 2 pi i / places over a power of the temperature that grows from 1 with each
    pair of features.
    """
    turns = torch.arange(1, places + 1, dtype=torch.float32, device=device) / (places + EPSILON)
    powers = torch.arange(0, FEATURES, 2, dtype=torch.float32, device=device) / FEATURES
    angles = 2 * math.pi * turns[:, None] / TEMPERATURE**powers  # (places, 16)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


class FanBlock(nn.Module):
    """x + gamma1 attn(norm1(x)), then x + gamma2 mlp(norm2(x)) with channel processing for the MLP.

    `heads` counts the heads of the channel processing.
    """

    def __init__(
        self,
        attention: nn.Module,
        width: int,
        heads: int,
        *,
        mlp_ratio: float,
        dropout: float,
        drop_path: float,
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=LAYER_NORM_EPSILON)
        self.attn = attention
        self.norm2 = nn.LayerNorm(width, eps=LAYER_NORM_EPSILON)
        self.mlp = ChannelProcessing(width, heads, int(width * mlp_ratio), dropout)
        self.gamma1 = nn.Parameter(torch.ones(width))
        self.gamma2 = nn.Parameter(torch.ones(width))
        self.dropout = nn.Dropout(dropout)
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor, grid: tuple[int, int]) -> Tensor:
        """Apply the block to (B, P, C); `grid` is the (height, width) of the patch tokens."""
        x = x + self.drop_path(self.gamma1 * self.dropout(self.attn(self.norm1(x), grid=grid)))
        output: Tensor = x + self.drop_path(self.gamma2 * self.mlp(self.norm2(x), grid))
        return output


class FullyAttentionalNetwork(ClassTokenHead):
    """FAN-ViT with one attention factory per FAN block.

    No weight depends on the image size: any height and width divisible by `patch_size` (4, 8 or 16 pixels)
    works. With 0 classes the class token's features are the output. The width C is at least 8; MLPs have
    `mlp_ratio` times C hidden units. Dropout is of embedding, attention output and MLP; stochastic depth has
    one rate, as released.
    """

    CLASSIFIER_ONLY: ClassVar[tuple[str, ...]] = ("head.", "cls_token", "cls_attn_blocks.")

    def __init__(
        self,
        attentions: Sequence[AttentionFactory],
        *,
        classes: int,
        channels: int,
        image_size: int,
        patch_size: int,
        width: int,
        heads: int,
        mlp_ratio: float = 4.0,
        dropout: float = 0.0,
        drop_path: float = 0.0,
    ) -> None:
        super().__init__()
        self.image_size = image_size
        self.num_features = width
        self.patch_embed = ConvStem(channels, patch_size, width)
        if image_size < patch_size or image_size % patch_size:
            raise ValueError(f"patch_size must divide image_size: got {patch_size} and {image_size}")
        patches = (image_size // patch_size) ** 2
        self.pos_embed = FourierPositions(width)
        self.pos_drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(
            FanBlock(
                make_attention(attention, width, heads, prefix_tokens=0, tokens=patches),
                width,
                heads,
                mlp_ratio=mlp_ratio,
                dropout=dropout,
                drop_path=drop_path,
            )
            for attention in attentions
        )
        self.cls_token = nn.Parameter(torch.empty(1, 1, width))
        self.cls_attn_blocks = nn.ModuleList(
            ClassAttentionBlock(width, heads, mlp_ratio=mlp_ratio, dropout=dropout)
            for _ in range(CLASS_BLOCKS)
        )
        self.norm = nn.LayerNorm(width, eps=LAYER_NORM_EPSILON)
        self.reset_classifier(classes)
        nn.init.trunc_normal_(self.cls_token, std=0.02)
        self.apply(_initialize)

    def forward_features(self, images: Tensor) -> Tensor:
        """As `ClassTokenHead` says."""
        patches, _ = self._encode(images)
        # Not len(): torch.export treats that as a constant.
        tokens = torch.cat([self.cls_token.expand(patches.shape[0], -1, -1), patches], dim=1)  # (B, N, C)
        for block in self.cls_attn_blocks:
            tokens = block(tokens)
        normalized: Tensor = self.norm(tokens)
        return normalized

    def _encode(self, images: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """Unnormalised patch tokens (B, P, C), before the class token joins them, and their grid."""
        patches, grid = self.patch_embed(images)  # (B, P, C)
        patches = self.pos_drop(patches + self.pos_embed(grid))
        for block in self.blocks:
            patches = block(patches, grid)
        return patches, grid

    @property
    def patch_size(self) -> int:
        """Height and width of a patch in pixels."""
        return self.patch_embed.patch_size

    def as_encoder(self) -> None:
        """Remove the parts only needed for classification: class token, class attention and head."""
        self.reset_classifier(0)
        self.cls_attn_blocks = nn.ModuleList()
        del self.cls_token

    def patch_tokens(self, images: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """Normalised patch tokens (B, P, C), without class attention, and their grid."""
        patches, grid = self._encode(images)
        return self.norm(patches), grid

    def no_weight_decay(self) -> set[str]:
        """Names of the parameters that the FAN recipe exempts from weight decay, besides vectors."""
        return {"cls_token"}


def _initialize(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
