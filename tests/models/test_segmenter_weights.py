"""Segmenter's released layout: a network put together from timm's parts, with the authors' names."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from timm.models.vision_transformer import Block, VisionTransformer
from torch import Tensor, nn
from torch.nn.functional import interpolate, normalize

from assay.models.layers.layers import Classifier
from assay.models.segmenter import segmenter
from assay.models.vit import vit
from tests.support.foreign import loaded_from
from tests.support.weights import disturb

WIDTH, CLASSES, PATCH, SIDE = 64, 5, 8, 4
norm = functools.partial(nn.LayerNorm, eps=1e-5)


class LinearDecoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, patches: Tensor) -> Tensor:
        return self.head(patches)


class MaskTransformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(WIDTH, 1, qkv_bias=True, norm_layer=norm) for _ in range(2))
        self.cls_emb = nn.Parameter(torch.zeros(1, CLASSES, WIDTH))
        self.proj_dec = nn.Linear(WIDTH, WIDTH)
        self.proj_patch = nn.Parameter(torch.zeros(WIDTH, WIDTH))
        self.proj_classes = nn.Parameter(torch.zeros(WIDTH, WIDTH))
        self.decoder_norm, self.mask_norm = norm(WIDTH), norm(CLASSES)

    def forward(self, patches: Tensor) -> Tensor:
        x = torch.cat([self.proj_dec(patches), self.cls_emb.expand(len(patches), -1, -1)], dim=1)
        for block in self.blocks:
            x = block(x)
        x = self.decoder_norm(x)
        found = normalize(x[:, :-CLASSES] @ self.proj_patch, dim=-1)
        known = normalize(x[:, -CLASSES:] @ self.proj_classes, dim=-1)
        return self.mask_norm(torch.einsum("bpc,bkc->bpk", found, known))


class Released(nn.Module):
    def __init__(self, decoder: nn.Module) -> None:
        super().__init__()
        # Its head for ImageNet stays in the file.
        self.encoder = VisionTransformer(
            img_size=SIDE * PATCH,
            patch_size=PATCH,
            embed_dim=WIDTH,
            depth=2,
            num_heads=2,
            num_classes=11,
            norm_layer=norm,
        )
        self.decoder = decoder

    def forward(self, images: Tensor) -> Tensor:
        logits = self.decoder(self.encoder.forward_features(images)[:, 1:])
        maps = logits.transpose(1, 2).reshape(len(images), CLASSES, SIDE, SIDE)
        return interpolate(maps, size=images.shape[-2:], mode="bilinear")


@pytest.mark.parametrize("decoder", [LinearDecoder, MaskTransformer])
@pytest.mark.parametrize("prefix", ["", "model."])
def test_released_weights_answer_as_ours(decoder: type[nn.Module], prefix: str) -> None:
    theirs = Released(decoder())
    disturb(theirs)
    theirs.double().eval()
    backbone = functools.partial(
        vit, image_size=SIDE * PATCH, patch_size=PATCH, width=WIDTH, depth=2, heads=2
    )
    named: dict[type[nn.Module], Any] = {LinearDecoder: "linear", MaskTransformer: "mask_transformer"}
    ours = segmenter(CLASSES, 3, backbone=backbone, decoder=named[decoder]).double().eval()
    tensors = {prefix + name: tensor for name, tensor in theirs.state_dict().items()}
    layout = loaded_from(tensors, Classifier(ours, [0.0] * 3, [1.0] * 3))
    assert layout.name == ("deit/segmenter" if prefix else "segmenter")
    images = torch.randn(2, 3, SIDE * PATCH, SIDE * PATCH, dtype=torch.float64)
    torch.testing.assert_close(ours(images), theirs(images), rtol=0, atol=1e-10)
