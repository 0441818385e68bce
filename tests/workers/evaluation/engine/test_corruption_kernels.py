"""Corruptions of an evaluation: their constants, and the files of the script."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image

from assay.attacks.corruptions.contrast import contrast
from assay.attacks.corruptions.imaging.constants import Constants
from assay.workers.evaluation.engine.corruption_kernels import corruption_kernels


@pytest.mark.parametrize(
    ("constants", "quality"),
    [("imagenet_c", 85), ("tiny_imagenet_c", 85), ("cifar_c", None), ("imagecorruptions", None)],
)
def test_images_pass_through_the_files_that_the_script_writes(
    constants: Constants, quality: int | None
) -> None:
    images = torch.rand(2, 3, 40, 40, generator=torch.Generator().manual_seed(0))
    plain = contrast(severity=2, constants=constants)(images, ("a", "b"), 0)
    (kernel,) = corruption_kernels([("contrast", 2)], constants)
    assert torch.equal(kernel(images, ("a", "b"), 0), plain)
    (filed,) = corruption_kernels([("contrast", 2)], constants, as_files=True)
    assert (filed.name, filed.severity) == ("contrast", 2)
    for found, image in zip(filed(images, ("a", "b"), 0), plain, strict=True):
        wanted = (image.permute(1, 2, 0) * 255).round().to(torch.uint8).numpy()
        if quality is not None:
            file = BytesIO()
            Image.fromarray(wanted).save(file, "JPEG", quality=quality, optimize=True)
            wanted = np.array(Image.open(file))
        assert np.array_equal((found.permute(1, 2, 0) * 255).round().numpy(), wanted)
