"""Building blocks of the models, and `Classifier`, the wrapper used everywhere else.

Names and layouts of the weights are timm's.

H and W = height and width in pixels, N = tokens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

LAYER_NORM_EPSILON = 1e-6


class Classifier(nn.Module):
    """Classifier of pixels in [0, 1]: normalises them, then applies the backbone.

    Mean and standard deviation, of each channel in pixel units of [0, 1], are part of the state dict: attacks
    work in pixel space, and saved weights keep their normalisation. The backbone maps normalised images (B,
    channels, H, W) to logits (B, classes).
    """

    mean: Tensor
    std: Tensor

    def __init__(self, backbone: nn.Module, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        if not mean or len(mean) != len(std):
            raise ValueError(f"mean and std need one value per channel each: got {mean} and {std}")
        if not all(value > 0 for value in std):
            raise ValueError(f"std must be above 0: got {std}")
        self.backbone = backbone
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(1, -1, 1, 1))

    @property
    def image_size(self) -> int | None:
        """Height and width that the backbone expects, in pixels; None = unknown."""
        size = getattr(self.backbone, "image_size", None)
        return None if size is None else int(size)

    def normalize(self, pixels: Tensor) -> Tensor:
        """Normalise (B, channels, H, W). Raises ValueError: wrong number of channels."""
        channels = self.mean.shape[1]
        if pixels.dim() != 4 or pixels.shape[1] != channels:
            raise ValueError(f"images must be (batch, {channels}, height, width): got {tuple(pixels.shape)}")
        return (pixels - self.mean) / self.std

    def forward(self, pixels: Tensor) -> Tensor:
        """Logits (B, classes) of images (B, channels, H, W) with pixels in [0, 1]."""
        logits: Tensor = self.backbone(self.normalize(pixels))
        return logits


class PatchEmbedding(nn.Module):
    """Cuts an image into square patches and embeds each: (B, channels, H, W) to (B, N, C), row by row."""

    def __init__(self, channels: int, image_size: int, patch_size: int, width: int) -> None:
        super().__init__()
        if patch_size < 1 or image_size < patch_size or image_size % patch_size:
            raise ValueError(f"patch_size must divide image_size: got {patch_size} and {image_size}")
        self.image_size = image_size
        self.grid = (image_size // patch_size, image_size // patch_size)
        self.proj = nn.Conv2d(channels, width, kernel_size=patch_size, stride=patch_size)

    def forward(self, images: Tensor) -> Tensor:
        """Embed the patches. Raises ValueError: the image size differs from the model's."""
        size = (self.image_size, self.image_size)
        if tuple(images.shape[-2:]) != size:
            raise ValueError(f"images must be {size} pixels: got {tuple(images.shape[-2:])}")
        patches: Tensor = self.proj(images)  # (B, C, H / patch, W / patch)
        return patches.flatten(2).transpose(1, 2)


class Mlp(nn.Module):
    """Feed-forward part of a block: Linear, exact GELU, Linear, on (..., C)."""

    def __init__(self, width: int, hidden: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.act = nn.GELU()
        self.dropout = nn.Dropout(dropout)
        self.fc2 = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the MLP to (..., C)."""
        hidden = self.dropout(self.act(self.fc1(x)))
        output: Tensor = self.fc2(hidden)
        return output


class DropPath(nn.Module):
    """Stochastic depth: in training, drops an example's whole branch with probability `rate`.

    Huang et al., "Deep networks with stochastic depth", ECCV 2016. Kept branches are divided by 1 - rate.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """Drop or scale each example of (B, ...)."""
        if not self.training or self.rate == 0.0:
            return x
        kept = 1.0 - self.rate
        shape = (x.shape[0],) + (1,) * (x.dim() - 1)
        return x * x.new_empty(shape).bernoulli_(kept).div_(kept)

    def extra_repr(self) -> str:
        """Rate, for printing."""
        return f"rate={self.rate:.3f}"


class Block(nn.Module):
    """Pre-LayerNorm transformer block: x + attn(norm1(x)), then x + mlp(norm2(x)).

    The MLP has `mlp_ratio` times C hidden units; dropout acts inside and after the MLP and after the
    attention, stochastic depth on both branches.
    """

    def __init__(
        self, attention: nn.Module, width: int, *, mlp_ratio: float, dropout: float, drop_path: float
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=LAYER_NORM_EPSILON)
        self.attn = attention
        self.norm2 = nn.LayerNorm(width, eps=LAYER_NORM_EPSILON)
        self.mlp = Mlp(width, int(width * mlp_ratio), dropout)
        self.dropout = nn.Dropout(dropout)
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor, *, grid: tuple[int, int] | None = None) -> Tensor:
        """Apply the block to (B, N, C); `grid` is the (height, width) of the patch tokens."""
        x = x + self.drop_path(self.dropout(self.attn(self.norm1(x), grid=grid)))
        output: Tensor = x + self.drop_path(self.dropout(self.mlp(self.norm2(x))))
        return output


class ClassTokenHead(nn.Module, ABC):
    """A head on the class token, the first of `forward_features`; the methods have timm's names."""

    num_features: int
    head: nn.Module

    @abstractmethod
    def forward_features(self, images: Tensor) -> Tensor:
        """Normalised tokens (B, N, C) of images (B, channels, H, W), the class token first."""

    def forward_head(self, tokens: Tensor, pre_logits: bool = False) -> Tensor:
        """Logits (B, classes) of tokens (B, N, C), or with `pre_logits` the class token (B, C)."""
        features = tokens[:, 0]
        if pre_logits:
            return features
        logits: Tensor = self.head(features)
        return logits

    def forward(self, images: Tensor) -> Tensor:
        """Logits (B, classes) of normalised images (B, channels, H, W)."""
        return self.forward_head(self.forward_features(images))

    def get_classifier(self) -> nn.Module:
        """The head."""
        return self.head

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the head by a new one; 0 classes = no head."""
        self.num_classes = num_classes
        self.head = nn.Linear(self.num_features, num_classes) if num_classes else nn.Identity()
