"""Preprocessing of Hugging Face image classifiers, against their own processors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

from assay.models.layers.layers import Classifier
from tests.support import hf_models
from tests.support.hf_classifiers import edited, image_classifier

PROCESSING: list[dict[str, Any]] = [
    {},
    {"resample": 3},
    {"size": {"shortest_edge": 28}, "do_center_crop": True, "crop_size": {"height": 24, "width": 24}},
    {"image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.25], "resample": 1},
    {"rescale_factor": 1 / 127.5, "do_normalize": False},
    {"do_normalize": False},
]


@torch.no_grad()
@pytest.mark.parametrize("side", [24, 16, 41])
@pytest.mark.parametrize("changes", PROCESSING)
def test_preprocessing_is_that_of_the_processor_but_for_rounding(
    changes: dict[str, Any], side: int, tmp_path: Path
) -> None:
    folder = edited(hf_models.vit(), tmp_path / "vit", "preprocessor_config.json", **changes)
    if "do_center_crop" in changes:
        kind = "BitImageProcessor"
        edited(folder, tmp_path / "bit", "preprocessor_config.json", image_processor_type=kind)
        folder = tmp_path / "bit"
    model = image_classifier(folder, geometry="model")
    whole = Classifier(model, model.pretrained_cfg["mean"], model.pretrained_cfg["std"]).eval()
    pixels = np.random.default_rng(0).integers(0, 256, (4, side, side, 3), dtype=np.uint8)
    processor = transformers.AutoImageProcessor.from_pretrained(folder)
    theirs = processor([Image.fromarray(one) for one in pixels], return_tensors="pt")["pixel_values"]
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255
    ours = model.processing(whole.normalize(images))
    spread = torch.tensor(model.pretrained_cfg["std"]).view(1, 3, 1, 1) * 255
    limit = 1e-3 if side == 24 and "do_center_crop" not in changes else 3.0
    assert ((ours - theirs).abs() * spread).max() < limit
    torch.testing.assert_close(whole(images), model.model(ours).logits)


def test_gradients_reach_the_pixels_of_the_data() -> None:
    model = image_classifier(hf_models.vit())
    model.suit([str(digit) for digit in range(10)], (8, 8))
    assert (model.image_size, model.labels_by) == (8, "name")
    images = torch.rand(2, 3, 8, 8, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(model.double(), (images[:1],), fast_mode=True)
    model.suit(
        [str(digit) for digit in range(10)], None
    )  # images of several sizes are made 24 x 24 by the data
    assert model.image_size == 8  # a model is suited once
    fresh = image_classifier(hf_models.vit())
    fresh.suit([str(digit) for digit in range(10)], None)
    assert fresh.image_size == 24
    assert image_classifier(hf_models.vit(), image_size=12).image_size == 12


def test_steps_of_preprocessing_that_are_not_here_are_found_out(tmp_path: Path) -> None:
    name = "preprocessor_config.json"
    with pytest.raises(ValueError, match="asks for do_pad, which is not supported"):
        image_classifier(edited(hf_models.vit(), tmp_path / "a", name, do_pad=True))
    folder = edited(hf_models.vit(), tmp_path / "b", name, image_processor_type="LevitImageProcessor")
    with pytest.raises(ValueError, match="steps that are not supported"):
        image_classifier(folder, geometry="model")(torch.zeros(1, 3, 40, 40))
    folder = edited(hf_models.vit(), tmp_path / "c", name, image_processor_type="EfficientNetImageProcessor")
    with pytest.raises(ValueError, match="steps that are not supported"):  # normalises twice
        image_classifier(folder, geometry="data")(torch.zeros(1, 3, 24, 24))
