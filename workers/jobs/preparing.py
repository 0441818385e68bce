"""What it costs to make corrupted images, or to read them, beside the passes over them: nominal seconds.

Only the order of magnitude matters: it decides how long shards are. Small models and GPUs pass over an image
faster than it is corrupted, so that passes alone would make shards several times too long.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.service.submission.imagenet_c_layout import cells_of

# CPU milliseconds for an image of 224 x 224 pixels at severity 3 on one thread, batches of 16: `python -m
# benchmarks.corruptions --turns 2`, 2026-11-22, AMD EPYC.
MAKING = {
    "gaussian_noise": 0.74,
    "shot_noise": 0.89,
    "impulse_noise": 0.98,
    "defocus_blur": 1.57,
    "glass_blur": 5.55,
    "motion_blur": 1.85,
    "zoom_blur": 2.65,
    "snow": 1.76,
    "frost": 0.44,
    "fog": 1.14,
    "brightness": 0.49,
    "contrast": 0.44,
    "elastic_transform": 2.23,
    "pixelate": 0.47,
    "jpeg_compression": 0.84,
    "speckle_noise": 0.68,
    "gaussian_blur": 1.52,
    "spatter": 9.81,
    "saturate": 1.01,
}
MEASURED_PIXELS = 224 * 224
# What does not shrink with the pixels: at 32 x 32 the fifteen took 1.11 ms, not the 0.45 ms of their pixels.
FIXED = 0.05
# To decode a JPEG file of ImageNet-C's size: the same machine and day, one thread.
READING = 0.9
# How much faster than one thread of a CPU: what is asked of corruptions on a GPU, and a few threads that
# decode. Assumed, not measured.
FASTER_MAKING = {"cpu": 1.0, "cuda": 20.0}
FASTER_READING = {"cpu": 1.0, "cuda": 4.0}
# Of images that are corrupted in their files' own size, which only the files know: about those of ADE20K.
WHOLE_IMAGE = 512 * 683


def preparation_seconds(item: Mapping[str, Any], image_size: int, device: str) -> float:
    """Nominal seconds for the corrupted images of one example; 0 of evaluations without corruptions.

    Args:
        item: an evaluation of a spec: {"name", "params"}.
        image_size: of the model, in pixels.
        device: "cpu" or "cuda".
    """
    params = item["params"]
    if not {"corruptions", "severities"} <= params.keys():
        return 0.0
    cells = cells_of(params)
    if params.get("source") == "stored":
        return 1e-3 * READING * len(cells) / FASTER_READING[device]
    pixels = WHOLE_IMAGE if "window" in params else image_size**2
    milliseconds = sum(FIXED + MAKING[name] * pixels / MEASURED_PIXELS for name, _ in cells)
    return 1e-3 * milliseconds / FASTER_MAKING[device]
