"""Vision transformer: patches, a class token, blocks with any attention, a head on the class token.

Dosovitskiy et al., "An image is worth 16x16 words", ICLR 2021; sizes and block as in DeiT (Touvron et al.,
ICML 2021). Initialisation as released by the authors of RPC-Attention: PyTorch's defaults for linear and
convolutional layers, truncated normal with standard deviation 0.02 for position embedding and class token.

P = patches, N = 1 + P tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from assay.models.layers.heads import AttentionFactory, make_attention
from assay.models.layers.layers import LAYER_NORM_EPSILON, Block, ClassTokenHead, PatchEmbedding
from assay.models.layers.position_embeddings import resize_positions


class VisionTransformer(ClassTokenHead):
    """Vision transformer with one attention factory per layer.

    With 0 classes the class token's features are the output. Sizes are in pixels. MLPs have `mlp_ratio` times
    C hidden units. Dropout is of embedding, attention output and MLP; stochastic depth rises linearly from 0
    in the first layer to `drop_path` in the last.
    """

    CLASSIFIER_ONLY: ClassVar[tuple[str, ...]] = ("head.",)

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
        self.patch_embed = PatchEmbedding(channels, image_size, patch_size, width)
        rows, columns = self.patch_embed.grid
        self.cls_token = nn.Parameter(torch.empty(1, 1, width))
        self.pos_embed = nn.Parameter(torch.empty(1, 1 + rows * columns, width))
        self.pos_drop = nn.Dropout(dropout)
        last = max(len(attentions) - 1, 1)
        self.blocks = nn.ModuleList(
            Block(
                make_attention(attention, width, heads, prefix_tokens=1, tokens=1 + rows * columns),
                width,
                mlp_ratio=mlp_ratio,
                dropout=dropout,
                drop_path=drop_path * layer / last,
            )
            for layer, attention in enumerate(attentions)
        )
        if self.blocks and all(map(_hides_patches, self.blocks)):
            raise ValueError(
                "causal attention, or one that mixes no tokens, must not be in every layer: "
                "the class token comes first and would see no patch"
            )
        self.norm = nn.LayerNorm(width, eps=LAYER_NORM_EPSILON)
        self.reset_classifier(classes)
        nn.init.trunc_normal_(self.cls_token, std=0.02)
        nn.init.trunc_normal_(self.pos_embed, std=0.02)

    def forward_features(self, images: Tensor) -> Tensor:
        """As `ClassTokenHead` says."""
        return self.encode(self.patch_embed(images), self.patch_embed.grid)

    def encode(self, patches: Tensor, grid: tuple[int, int]) -> Tensor:
        """Normalised tokens (B, N, C), the class token first, of embedded patches (B, P, C), row by row.

        On another grid than the model's the position embedding is resized, bilinear with half-pixel centres.
        """
        # Not len(): torch.export treats that as a constant.
        tokens = torch.cat([self.cls_token.expand(patches.shape[0], -1, -1), patches], dim=1)  # (B, N, C)
        tokens = self.pos_drop(tokens + self._positions(grid))
        for block in self.blocks:
            tokens = block(tokens, grid=grid)
        normalized: Tensor = self.norm(tokens)
        return normalized

    @property
    def patch_size(self) -> int:
        """Height and width of a patch in pixels."""
        return self.patch_embed.proj.kernel_size[0]

    def as_encoder(self) -> None:
        """Remove the head. The class token stays, because it takes part in every layer."""
        self.reset_classifier(0)

    def patch_tokens(self, images: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """Normalised patch tokens (B, P, C) and their grid, of images divisible by `patch_size`."""
        patches: Tensor = self.patch_embed.proj(images)  # (B, C, h, w)
        grid = (patches.shape[2], patches.shape[3])
        return self.encode(patches.flatten(2).transpose(1, 2), grid)[:, 1:], grid

    def _positions(self, grid: tuple[int, int]) -> Tensor:
        return resize_positions(self.pos_embed, self.patch_embed.grid, grid)

    def no_weight_decay(self) -> set[str]:
        """Names of the parameters that the DeiT recipe exempts from weight decay, besides vectors."""
        return {"cls_token", "pos_embed"}


def _hides_patches(block: nn.Module) -> bool:
    return getattr(block.attn, "causal", False) or not getattr(block.attn, "mixes_tokens", True)
