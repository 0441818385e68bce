"""timm's augmentations of single images and its mixing of batches, with keyed draws.

The pipeline of DeiT (Touvron et al., ICML 2021): random crops resized to the image size, RandAugment (Cubuk
et al., NeurIPS 2020), random erasing with normal noise (Zhong et al., AAAI 2020), mixup or cutmix (Yun et
al., ICCV 2019). timm draws from Python's, numpy's and torch's global generators; here they are seeded for
each image, and left as they were found. Deviation: crops are cut from the image at the model's size, which
is what data sets give, and not from the file at its own. Images are 8-bit while they are cropped and
recoloured, as in timm.

Importing this module imports timm, which takes seconds.

Legend: B batch, C channels, S image side, K classes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from PIL import Image
from timm.data.auto_augment import rand_augment_transform
from timm.data.mixup import Mixup
from timm.data.random_erasing import RandomErasing
from timm.data.transforms import RandomResizedCropAndInterpolation
from torch import Tensor

from workers.training.randomness import derive_seed
from workers.training.recipe import Augmentation

Transform = Callable[[Image.Image], Image.Image]

# As timm's `create_transform` has it.
TRANSLATION_SHARE = 0.45
PICTURE_CHANNELS = (1, 3)


def recolour(
    images: Tensor, augmentation: Augmentation, *, mean: Sequence[float], seed: int, step: int
) -> Tensor:
    """Crop each image and apply RandAugment to it.

    Args:
        images: (B, C, S, S) in [0, 1], C 1 or 3.
        augmentation: `smallest_crop` and `rand_augment`.
        mean: pixel mean of each channel; what comes in from outside an image has that colour.
        seed: the job's seed.
        step: the step that the images are for.

    Returns:
        A tensor of the same shape, type and device; pixels are multiples of 1 / 255.

    Raises:
        ValueError: another number of channels.
    """
    transforms = _transforms(augmentation, images.shape[-1], mean)
    if not transforms:
        return images
    if images.shape[1] not in PICTURE_CHANNELS:
        raise ValueError(f"RandAugment and crops are for images of 1 or 3 channels: got {images.shape[1]}")
    pixels = (images.float() * 255).round().to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy()
    changed = np.empty_like(pixels)
    with _global_generators_restored():
        for index, picture in enumerate(pixels):
            _seed(derive_seed(seed, f"timm/{index}", step))
            image = Image.fromarray(picture[:, :, 0] if picture.shape[2] == 1 else picture)
            for transform in transforms:
                image = transform(image)
            changed[index] = np.asarray(image).reshape(picture.shape)
    return torch.from_numpy(changed).permute(0, 3, 1, 2).to(images) / 255


def erase(
    images: Tensor,
    augmentation: Augmentation,
    *,
    mean: Sequence[float],
    std: Sequence[float],
    seed: int,
    step: int,
) -> Tensor:
    """Fill a random rectangle of some images with noise that is standard normal after normalisation.

    Args:
        images: (B, C, S, S) in [0, 1].
        augmentation: `erase` is the probability for each image.
        mean: mean of each channel by which the model normalises.
        std: standard deviation of each channel.
        seed: the job's seed.
        step: the step that the images are for.

    Returns:
        A tensor of the same shape, type and device; the noise may leave [0, 1].
    """
    if augmentation.erase == 0:
        return images
    centre, spread = (torch.tensor(values).view(1, -1, 1, 1) for values in (mean, std))
    normalized = (images.float().cpu() - centre) / spread
    with _global_generators_restored():
        _seed(derive_seed(seed, "erase", step))
        noisy = RandomErasing(augmentation.erase, mode="pixel", device="cpu")(normalized.clone())
    noise = (noisy * spread + centre).to(images)
    return torch.where((noisy == normalized).to(images.device), images, noise)


def mix_batch(
    images: Tensor, labels: Tensor, augmentation: Augmentation, *, classes: int, seed: int, step: int
) -> tuple[Tensor, Tensor]:
    """Mixup or cutmix of the batch with itself in reverse order, one weight for all.

    Args:
        images: (B, C, S, S), B even.
        labels: int64 (B,).
        augmentation: `mixup` and `cutmix`; where both are on, either has probability one half.
        classes: K.
        seed: the job's seed.
        step: the step that the batch is for.

    Returns:
        Images (B, C, S, S) and class probabilities (B, K).

    Raises:
        ValueError: the batch is odd.
    """
    if len(images) % 2:
        raise ValueError(
            f"cutmix mixes pairs: the batch has {len(images)} examples; set execution.batch_size to an even"
            " number that is not above the number of examples"
        )
    mixing = Mixup(augmentation.mixup, augmentation.cutmix, label_smoothing=0.0, num_classes=classes)
    with _global_generators_restored():
        _seed(derive_seed(seed, "mix", step))
        mixed, target = mixing(images.clone(), labels)
    return mixed, target.to(mixed)


def _transforms(augmentation: Augmentation, size: int, mean: Sequence[float]) -> list[Transform]:
    found: list[Transform] = []
    if augmentation.smallest_crop < 1:
        scale = (augmentation.smallest_crop, 1.0)
        found.append(RandomResizedCropAndInterpolation(size, scale=scale, interpolation="bicubic"))
    if augmentation.rand_augment is not None:
        parameters = {
            "translate_const": int(size * TRANSLATION_SHARE),
            "img_mean": tuple(min(255, round(255 * value)) for value in mean),
            "interpolation": Image.Resampling.BICUBIC,
        }
        found.append(rand_augment_transform(augmentation.rand_augment, parameters))
    return found


def _seed(value: int) -> None:
    random.seed(value)
    np.random.seed(value & 0xFFFFFFFF)
    torch.default_generator.manual_seed(value)


@contextmanager
def _global_generators_restored() -> Iterator[None]:
    states = random.getstate(), np.random.get_state()
    with torch.random.fork_rng([]):
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])
