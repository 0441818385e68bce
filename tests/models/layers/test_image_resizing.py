"""Filters of resizing are Pillow's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from assay.models.layers.image_resizing import FILTERS, resize_images


@pytest.mark.parametrize("resample", sorted(FILTERS))
@pytest.mark.parametrize(("before", "after"), [(12, 30), (31, 9)])
def test_filters_are_those_of_pillow(resample: str, before: int, after: int) -> None:
    values = np.random.default_rng(0).random((before, before), dtype=np.float32)
    filters = {name.lower(): value for name, value in Image.Resampling.__members__.items()}
    theirs = np.array(Image.fromarray(values, mode="F").resize((after, after + 3), filters[resample]))
    ours = resize_images(torch.from_numpy(values)[None, None].double(), (after + 3, after), resample)
    torch.testing.assert_close(ours[0, 0], torch.from_numpy(theirs).double(), rtol=1e-5, atol=1e-5)
