"""The fifteen corruptions that ImageNet-C is scored by, in the order of its authors' tables.

Hendrycks and Dietterich 2019, section 4; without the four extra ones, for validation.
"""

from __future__ import annotations

FIFTEEN = (
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "defocus_blur",
    "glass_blur",
    "motion_blur",
    "zoom_blur",
    "snow",
    "frost",
    "fog",
    "brightness",
    "contrast",
    "elastic_transform",
    "pixelate",
    "jpeg_compression",
)
