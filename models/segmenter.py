"""Segmenter: a vision transformer whose patch tokens are decoded to a class for each pixel.

Strudel et al., "Segmenter: Transformer for Semantic Segmentation", ICCV 2021. Images are padded with zeros
at the right and at the bottom to whole patches, the decoder's maps are enlarged to the padded size (bilinear
with half-pixel centres) and cut to the image. Every LayerNorm has the epsilon of the authors' code.

B = batch, H and W = height and width in pixels, h and w = the same in patches, K = classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal, Protocol

from torch import Tensor, nn
from torch.nn.functional import interpolate, pad

from models.parameters import Depth, DropRate, Heads, ImageSize
from models.rpc_asymvit import rpc_asymvit
from models.rpc_asymvit_sizes import rpc_asymvit_base, rpc_asymvit_tiny
from models.rpc_symvit import rpc_symvit
from models.rpc_symvit_sizes import rpc_symvit_base, rpc_symvit_tiny
from models.segmentation_decoders import LinearDecoder, MaskTransformer, set_epsilon
from models.symvit import symvit
from models.symvit_sizes import symvit_base, symvit_tiny
from models.transformer import VisionTransformer
from models.vit import vit

__all__ = ["segmenter"]


class Backbone(Protocol):
    """Makes the encoder: a model of the catalog, or one with the user's parameters bound."""

    def __call__(self, classes: int, channels: int) -> nn.Module:
        """Make a model; with 0 classes it has no head."""
        ...


# The models of the catalog that are a `VisionTransformer`.
BACKBONES: Mapping[str, Backbone] = MappingProxyType(
    {
        "rpc_asymvit": rpc_asymvit,
        "rpc_asymvit_base": rpc_asymvit_base,
        "rpc_asymvit_tiny": rpc_asymvit_tiny,
        "rpc_symvit": rpc_symvit,
        "rpc_symvit_base": rpc_symvit_base,
        "rpc_symvit_tiny": rpc_symvit_tiny,
        "symvit": symvit,
        "symvit_base": symvit_base,
        "symvit_tiny": symvit_tiny,
        "vit": vit,
    }
)

TASKS = ("segmentation",)
OFFERS = ("softmax",)
RULES = (
    (
        f"model.backbone in {tuple(BACKBONES)}",
        f"backbone must be a vision transformer of the catalog: {', '.join(BACKBONES)}",
    ),
)
PAPER = "Strudel et al., Segmenter: Transformer for Semantic Segmentation, ICCV 2021"

# Channels of a head of the mask transformer.
HEAD_WIDTH = 64


def segmenter(
    classes: int,
    channels: int,
    *,
    backbone: Annotated[Backbone | str, "model"] = "vit",
    decoder: Literal["mask_transformer", "linear"] = "mask_transformer",
    image_size: ImageSize | None = None,
    decoder_depth: Depth = 2,
    decoder_heads: Heads | None = None,
    decoder_dropout: DropRate = 0.1,
) -> nn.Module:
    """Segmenter: semantic segmentation with any vision transformer of the catalog as encoder.

    The defaults are Seg-T-Mask/16 at the backbone's 224 pixels, with softmax attention.

    Args:
        classes: number of classes K.
        channels: channels of the images.
        backbone: the encoder with its parameters, or its name; its `image_size` sets its position embedding.
        decoder: a mask transformer, or one linear layer for each patch.
        image_size: height and width of the images in pixels, the backbone's own if absent; the position
            embedding is resized, and images are padded to whole patches.
        decoder_depth: blocks of the mask transformer.
        decoder_heads: its attention heads; must divide the backbone's width. If absent, the width / 64,
            rounded down, at least 1.
        decoder_dropout: its dropout rate.

    Returns:
        Module from normalised images (B, channels, H, W) of any size to logits (B, K, H, W).

    Raises:
        ValueError: a rule is broken, the backbone is no vision transformer, or no backbone has that name.
    """
    if isinstance(backbone, str) and backbone not in BACKBONES:
        raise ValueError(f"no backbone is called {backbone!r} (there are {', '.join(BACKBONES)})")
    encoder = (BACKBONES[backbone] if isinstance(backbone, str) else backbone)(0, channels)
    if not isinstance(encoder, VisionTransformer):
        raise ValueError(f"backbone must be a vision transformer: got {type(encoder).__name__}")
    width = encoder.num_features
    head: nn.Module
    if decoder == "linear":
        head = LinearDecoder(width, classes)
    else:
        heads = decoder_heads or max(width // HEAD_WIDTH, 1)
        head = MaskTransformer(width, classes, depth=decoder_depth, heads=heads, dropout=decoder_dropout)
    return Segmenter(encoder, head, image_size or encoder.image_size)


class Segmenter(nn.Module):
    """An encoder of patches and a decoder of their tokens.

    Args:
        encoder: without a head; its LayerNorms get Segmenter's epsilon.
        decoder: maps patch tokens (B, h * w, C) and (h, w) to (B, K, h, w).
        image_size: height and width of the images that it is for, in pixels; others are accepted.
    """

    def __init__(self, encoder: VisionTransformer, decoder: nn.Module, image_size: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.image_size = image_size
        set_epsilon(encoder)

    def forward(self, images: Tensor) -> Tensor:
        """Logits (B, K, H, W) of normalised images (B, channels, H, W)."""
        height, width = images.shape[-2:]
        across, down = -width % self._patch_size, -height % self._patch_size
        patches = self.encoder.patch_embed.proj(pad(images, (0, across, 0, down)))  # (B, C, h, w)
        grid = (patches.shape[2], patches.shape[3])
        tokens = self.encoder.encode(patches.flatten(2).transpose(1, 2), grid)[
            :, 1:
        ]  # without the class token
        size = (height + down, width + across)
        logits = interpolate(self.decoder(tokens, grid), size=size, mode="bilinear", align_corners=False)
        return logits[:, :, :height, :width]

    @property
    def _patch_size(self) -> int:
        return self.encoder.patch_embed.proj.kernel_size[0]
