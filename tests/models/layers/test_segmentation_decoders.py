"""Segmenter's decoders against the authors' numbers and against their formula."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from assay.models.layers.segmentation_decoders import LinearDecoder, MaskTransformer

VECTOR = Path(__file__).parents[2] / "vectors" / "segm_mask_transformer.npz"


def decoder(width: int = 12, classes: int = 5, depth: int = 2, dropout: float = 0.1) -> MaskTransformer:
    return MaskTransformer(width, classes, depth=depth, heads=3, dropout=dropout)


def test_mask_transformer_equals_the_authors() -> None:
    with np.load(VECTOR) as file:
        numbers = {key: torch.from_numpy(file[key]) for key in file.files}
    grid = (int(numbers["im_size"][0]) // 16, int(numbers["im_size"][1]) // 16)
    ours = decoder().eval()
    ours.load_state_dict({key[2:]: value for key, value in numbers.items() if key.startswith("w.")})
    with torch.no_grad():
        masks = ours.double()(numbers["x"].double(), grid)
    torch.testing.assert_close(masks, numbers["out"].double(), rtol=0, atol=5e-6)


def test_linear_decoder_classifies_each_patch_by_itself() -> None:
    linear = LinearDecoder(12, 5).double()
    patches = torch.randn(2, 6, 12, dtype=torch.float64)
    logits = linear(patches, (2, 3))
    assert logits.shape == (2, 5, 2, 3)
    torch.testing.assert_close(logits[1, :, 1, 2], linear.head(patches[1, 5]), rtol=0, atol=1e-12)


def test_masks_are_normalised_over_the_classes() -> None:
    masks = decoder().eval()(torch.randn(2, 6, 12), (2, 3))
    torch.testing.assert_close(masks.mean(dim=1), torch.zeros(2, 2, 3), rtol=0, atol=1e-5)


def test_an_image_does_not_depend_on_its_batch() -> None:
    ours = decoder().double().eval()
    patches = torch.randn(3, 6, 12, dtype=torch.float64)
    torch.testing.assert_close(ours(patches, (2, 3))[1:2], ours(patches[1:2], (2, 3)), rtol=0, atol=1e-12)


def test_initialisation_is_as_released() -> None:
    ours = decoder(width=192, classes=150)
    for weight in (ours.proj_dec.weight, ours.blocks[0].mlp.fc1.weight, ours.cls_emb):
        assert 0.018 < weight.std() < 0.022
    assert not ours.proj_dec.bias.any()
    for weight in (ours.proj_patch, ours.proj_classes):
        assert 0.95 * 192**-0.5 < weight.std() < 1.05 * 192**-0.5
    norms = [part for part in ours.modules() if isinstance(part, torch.nn.LayerNorm)]
    assert {norm.eps for norm in norms} == {1e-5}
    assert len(norms) == 6


def test_dropout_reaches_attention_and_mlp() -> None:
    block = decoder(dropout=0.3).blocks[0]
    assert (block.attn.dropout, block.mlp.dropout.p, block.dropout.p) == (0.3, 0.3, 0.3)


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(ValueError, match="heads must divide width: got width 16 and heads 3"):
        decoder(width=16)
