"""timm's augmentations of single images and its mixing of batches, with keyed draws.

The pipeline of DeiT (Touvron et al., ICML 2021): random crops of the file at its own size, resized,
horizontal flips, RandAugment (Cubuk et al., NeurIPS 2020), random erasing with normal noise (Zhong et al.,
AAAI 2020), mixup or cutmix (Yun et al., ICCV 2019). timm's draws are from Python's, numpy's and torch's
global generators; here these are seeded per image, and per mixed batch. Images are 8-bit until they are
erased, as in timm. Deviation: the middle image of an odd batch is mixed with itself; timm rejects such a
batch.

Legend: B batch, C channels, S image side, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from PIL import Image
from timm.data.auto_augment import posterize, rand_augment_transform
from timm.data.mixup import Mixup
from timm.data.random_erasing import RandomErasing
from timm.data.transforms import RandomResizedCropAndInterpolation
from torch import Tensor
from torchvision.transforms import RandomHorizontalFlip

from assay.attacks.sending import sent
from assay.workers.data.formats.dataset import DataSet, original
from assay.workers.data.formats.images.pictures import as_picture
from assay.workers.training.examples import Example
from assay.workers.training.randomness import derive_seed, library_generators_restored, seed_libraries
from assay.workers.training.recipe import Augmentation

Transform = Callable[[Image.Image], Image.Image]

TRANSLATION_SHARE = 0.45  # As in timm's `create_transform`
PICTURE_CHANNELS = (1, 3)


class TimmExamples:
    """Images, cropped, mirrored, recoloured, erased; ValueError: not 1 or 3 channels."""

    def __init__(self, data: DataSet, augmentation: Augmentation, size: int) -> None:
        if data.channels not in PICTURE_CHANNELS:
            raise ValueError(f"RandAugment and crops are for images of 1 or 3 channels: got {data.channels}")
        self.ids: Sequence[str] = data.ids
        self._data = data
        self._size = size
        self._crops = augmentation.smallest_crop < 1
        self._transforms = _transforms(augmentation, size, data.mean)
        self._erasing = RandomErasing(augmentation.erase, mode="const", device="cpu")

    def make(self, index: int, seed: int) -> Example:
        """An augmented image, with draws from a seed; its erased rectangle's noise comes later."""
        picture = original(self._data, index) if self._crops else None
        if picture is None:
            picture = as_picture(self._data.images([index], self._size)[0])
        seed_libraries(seed)
        for transform in self._transforms:
            picture = transform(picture)
        pixels = np.array(picture).reshape(self._size, self._size, -1)  # (S, S, C)
        image = torch.from_numpy(pixels).permute(2, 0, 1).contiguous()
        return Example(image, self._data.labels[index], self._erased())

    def _erased(self) -> tuple[int, int, int, int]:
        gone = self._erasing(torch.ones(1, self._size, self._size))[0] == 0  # (S, S)
        down, across = (gone.any(axis).nonzero().flatten().tolist() for axis in (1, 0))
        return (down[0], across[0], down[-1] + 1, across[-1] + 1) if down else (0, 0, 0, 0)


def mix_batch(
    images: Tensor, labels: Tensor, augmentation: Augmentation, *, classes: int, seed: int, step: int
) -> tuple[Tensor, Tensor]:
    """Mixup or cutmix of the batch with itself in reverse order, one weight for all.

    Images are (B, C, S, S), labels int64 (B,). If both are on, each has probability one half. All parts of a
    batch draw alike. Returns images and class probabilities (B, K).
    """
    mixing = Mixup(augmentation.mixup, augmentation.cutmix, label_smoothing=0.0, num_classes=classes)
    n, middle = len(images), len(images) // 2
    # The middle example is doubled: timm needs pairs.
    rows = torch.arange(n) if n % 2 == 0 else torch.cat([torch.arange(middle + 1), torch.arange(middle, n)])
    chosen = sent(rows, images)
    with library_generators_restored():
        seed_libraries(derive_seed(seed, "mix", step))
        mixed, target = mixing(images[chosen], labels[chosen])
    once = sent(rows.diff(prepend=torch.tensor([-1])).nonzero().flatten(), images)
    return mixed[once], target.to(mixed)[once]


def _transforms(augmentation: Augmentation, size: int, mean: Sequence[float]) -> list[Transform]:
    found: list[Transform] = []
    if augmentation.smallest_crop < 1:
        scale = (augmentation.smallest_crop, 1.0)
        found.append(RandomResizedCropAndInterpolation(size, scale=scale, interpolation="bicubic"))
    if augmentation.flip:
        found.append(RandomHorizontalFlip())
    if augmentation.rand_augment is not None:
        parameters = {
            "translate_const": int(size * TRANSLATION_SHARE),
            "img_mean": tuple(min(255, round(255 * value)) for value in mean),
            "interpolation": Image.Resampling.BICUBIC,
        }
        policy = rand_augment_transform(augmentation.rand_augment, parameters)
        for operation in policy.ops:
            if operation.aug_fn is posterize:
                operation.aug_fn = _posterize
        found.append(policy)
    return found


def _posterize(image: Image.Image, bits: int, **others: object) -> Image.Image:
    """timm's, with 4 to 0 bits; Pillow 12 refuses 0, which made the image black."""
    if bits < 1:
        return Image.new(image.mode, image.size)
    kept: Image.Image = posterize(image, bits, **others)
    return kept
