"""Decoders of Segmenter: patch tokens of the encoder to one logit map per class.

Strudel et al., "Segmenter: Transformer for Semantic Segmentation", ICCV 2021, section 3.2; as in its authors'
code truncated normal with standard deviation 0.02 for linear layers and class embeddings, zero for biases.

P = patches = h * w, K = classes.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from assay.models.attention.softmax import SoftmaxAttention
from assay.models.layers.layers import Block

# LayerNorm epsilon throughout Segmenter, encoder included.
LAYER_NORM_EPSILON = 1e-5
INITIAL_DEVIATION = 0.02


def set_epsilon(module: nn.Module) -> None:
    """Set Segmenter's epsilon in every LayerNorm of a module."""
    for part in module.modules():
        if isinstance(part, nn.LayerNorm):
            part.eps = LAYER_NORM_EPSILON


def _initialise(module: nn.Module) -> None:
    for part in module.modules():
        if isinstance(part, nn.Linear):
            nn.init.trunc_normal_(part.weight, std=INITIAL_DEVIATION)
            nn.init.zeros_(part.bias)


def _on_grid(logits: Tensor, grid: tuple[int, int]) -> Tensor:
    return logits.transpose(1, 2).reshape(logits.shape[0], -1, *grid)


class LinearDecoder(nn.Module):
    """Linear layer from each patch token to class logits."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(width, classes)
        _initialise(self)

    def forward(self, patches: Tensor, grid: tuple[int, int]) -> Tensor:
        """Logits (B, K, h, w) of patch tokens (B, P, C) on a grid of (h, w)."""
        logits: Tensor = self.head(patches)  # (B, P, K)
        return _on_grid(logits, grid)


class MaskTransformer(nn.Module):
    """Transformer blocks over the patches and a learned embedding per class.

    A mask is the cosine of a class with each patch; a LayerNorm over the classes turns it into logits. The
    blocks always have softmax attention. Dropout is of the attention weights, the attention output and the
    MLP.
    """

    def __init__(self, width: int, classes: int, *, depth: int, heads: int, dropout: float) -> None:
        super().__init__()
        attention = functools.partial(SoftmaxAttention, width, heads, prefix_tokens=0, dropout=dropout)
        self.proj_dec = nn.Linear(width, width)
        self.cls_emb = nn.Parameter(torch.empty(1, classes, width))
        self.blocks = nn.ModuleList(
            Block(attention(), width, mlp_ratio=4.0, dropout=dropout, drop_path=0.0) for _ in range(depth)
        )
        self.decoder_norm = nn.LayerNorm(width)
        self.proj_patch = nn.Parameter(width**-0.5 * torch.randn(width, width))
        self.proj_classes = nn.Parameter(width**-0.5 * torch.randn(width, width))
        self.mask_norm = nn.LayerNorm(classes)
        _initialise(self)
        nn.init.trunc_normal_(self.cls_emb, std=INITIAL_DEVIATION)
        set_epsilon(self)

    def forward(self, patches: Tensor, grid: tuple[int, int]) -> Tensor:
        """Logits (B, K, h, w) of patch tokens (B, P, C) on a grid of (h, w)."""
        classes = self.cls_emb.expand(patches.shape[0], -1, -1)  # (B, K, C)
        tokens = torch.cat([self.proj_dec(patches), classes], dim=1)  # (B, P + K, C)
        for block in self.blocks:
            tokens = block(tokens)
        tokens = self.decoder_norm(tokens)
        count = patches.shape[1]
        of_patches = normalize(tokens[:, :count] @ self.proj_patch, dim=-1)  # (B, P, C)
        of_classes = normalize(tokens[:, count:] @ self.proj_classes, dim=-1)  # (B, K, C)
        masks: Tensor = self.mask_norm(of_patches @ of_classes.transpose(1, 2))  # (B, P, K)
        return _on_grid(masks, grid)

    def no_weight_decay(self) -> set[str]:
        """Names of the parameters exempt from weight decay, besides vectors."""
        return {"cls_emb"}
