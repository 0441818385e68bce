"""Segmenter: a vision transformer with patch tokens that are decoded to a class for each pixel.

Strudel et al., "Segmenter: Transformer for Semantic Segmentation", ICCV 2021. Images are padded with zeros at
the right and at the bottom to whole patches; maps are enlarged to the padded size (bilinear with half-pixel
centres) and cut to the image. LayerNorms of a vision transformer and of the decoder have the epsilon of the
authors' code. FAN, not in the paper, has no class attention as an encoder: its patch tokens are normalised by
its last LayerNorm.

    t = the encoder's normalised patch tokens
    linear              z = W t + b
    mask_transformer    [p; c] = LN(blocks([W t + b; class embeddings]))
                        z = LN over classes of cos(p W_p, c W_c)    for each patch p and class c
    logits = z, bilinear from the grid of patches to the pixels

H and W = height and width in pixels, h and w = the same in patches, K = classes.
"""

from __future__ import annotations

from typing import Annotated, Literal, cast

from torch import Tensor, nn
from torch.nn.functional import interpolate, pad

from assay.models.layers import parameters
from assay.models.layers.encoders import Backbone, Encoder
from assay.models.layers.parameters import Depth, DropRate, Heads, ImageSize
from assay.models.layers.segmentation_decoders import LinearDecoder, MaskTransformer, set_epsilon
from assay.models.layers.transformer import VisionTransformer
from assay.models.vit import vit

__all__ = ["segmenter"]


# Channels of a head of the mask transformer.
HEAD_WIDTH = 64

TASKS = ("segmentation",)
OFFERS = ("softmax",)
RULES = (
    (
        "model.decoder == 'linear' or part.backbone_width %"
        f" (model.decoder_heads or max(part.backbone_width // {HEAD_WIDTH}, 1)) == 0",
        "decoder_heads must divide the width of the backbone; where it is absent, it is that width"
        f" / {HEAD_WIDTH}, rounded down",
    ),
    (
        "model.image_size is None or part.backbone_attention != 'scaled_learned'"
        " or model.image_size <= part.backbone_image_size",
        "image_size must not be larger than the backbone's: its learned S is for that many patches",
    ),
)
PAPER = "Strudel et al., Segmenter: Transformer for Semantic Segmentation, ICCV 2021"


def segmenter(
    classes: parameters.Classes,
    channels: parameters.Channels,
    *,
    backbone: Annotated[Backbone, "model:patch_tokens"] = vit,
    decoder: Literal["mask_transformer", "linear"] = "mask_transformer",
    image_size: ImageSize | None = None,
    decoder_depth: Depth = 2,
    decoder_heads: Heads | None = None,
    decoder_dropout: DropRate = 0.1,
) -> nn.Module:
    """Segmenter: semantic segmentation with a transformer of the catalog as encoder.

    The defaults are Seg-T-Mask/16 at the backbone's 224 pixels, with softmax attention.

    Args:
        backbone: the encoder with its parameters; its `image_size` sets its position embedding.
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
        ValueError: the backbone has no patch tokens, or heads do not divide its width.
    """
    built = backbone(0, channels)
    if not hasattr(built, "patch_tokens"):
        raise ValueError(f"backbone must give patch tokens: got {type(built).__name__}")
    encoder = cast(Encoder, built)
    width = encoder.num_features
    head: nn.Module
    if decoder == "linear":
        head = LinearDecoder(width, classes)
    else:
        heads = decoder_heads or max(width // HEAD_WIDTH, 1)
        head = MaskTransformer(width, classes, depth=decoder_depth, heads=heads, dropout=decoder_dropout)
    return Segmenter(encoder, head, image_size or encoder.image_size)


class Segmenter(nn.Module):
    """An encoder of patches, permanently made one by `as_encoder`, and a decoder of their tokens.

    The decoder maps patch tokens (B, h * w, C) and (h, w) to (B, K, h, w). `image_size` is nominal, in
    pixels; others are accepted.
    """

    def __init__(self, encoder: Encoder, decoder: nn.Module, image_size: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.image_size = image_size
        encoder.as_encoder()
        if isinstance(encoder, VisionTransformer):
            set_epsilon(encoder)

    def forward(self, images: Tensor) -> Tensor:
        """Logits (B, K, H, W) of normalised images (B, channels, H, W)."""
        height, width = images.shape[-2:]
        across, down = -width % self.encoder.patch_size, -height % self.encoder.patch_size
        tokens, grid = self.encoder.patch_tokens(pad(images, (0, across, 0, down)))  # (B, h * w, C)
        size = (height + down, width + across)
        logits = interpolate(self.decoder(tokens, grid), size=size, mode="bilinear", align_corners=False)
        return logits[:, :, :height, :width]
