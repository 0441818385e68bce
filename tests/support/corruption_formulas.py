"""The authors' corruptions of one image, from their formulas, in float64: expected numbers of parity tests.

Written from what the scripts of hendrycks/robustness do, with numpy, scipy, scikit-image, Pillow and OpenCV.
An image is (S, S, 3), uint8; draws are what `Corruption.draws` makes for one example, without the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.ndimage import correlate, gaussian_filter, map_coordinates, zoom
from skimage.color import hsv2rgb, rgb2hsv

from assay.attacks.corruptions.imaging.shuffle import taking_part

Floats = NDArray[np.float64]
Bytes = NDArray[np.uint8]
Draws = Sequence[NDArray[Any]]


def expected(name: str, numbers: Any, image: Bytes, draws: Draws, script: str) -> Bytes:
    """The corrupted image, by the numbers of a script for a severity."""
    values = FORMULAS[name](image, numbers, draws, script)
    return np.clip(np.nan_to_num(values), 0, 255).astype(np.uint8)


def _blur(image: Floats, sigma: float) -> Floats:
    spread = (sigma, sigma) if image.ndim == 2 else (sigma, sigma, 0)
    return np.asarray(gaussian_filter(image, spread, mode="nearest", truncate=4.0))


def _noise(image: Bytes, sigma: float, draws: Draws, script: str) -> Floats:
    return 255 * (image / 255 + sigma * draws[0].transpose(1, 2, 0).astype(float))


def _speckle(image: Bytes, sigma: float, draws: Draws, script: str) -> Floats:
    return 255 * (image / 255 * (1 + sigma * draws[0].transpose(1, 2, 0).astype(float)))


def _gaussian_blur(image: Bytes, sigma: float, draws: Draws, script: str) -> Floats:
    return _blur(image / 255, sigma) * 255


def _glass(image: Bytes, numbers: Any, draws: Draws, script: str) -> Floats:
    sigma, reach, rounds = numbers
    levels = (_blur(image / 255, sigma) * 255).astype(np.uint8)
    first, stop = taking_part(len(image), reach)
    for step in range(rounds):
        for row in reversed(range(first, stop)):
            for column in reversed(range(first, stop)):
                down, across = draws[0][step, :, row - first, column - first]
                levels[row, column] = levels[row + int(down), column + int(across)]
    return _blur(levels / 255, sigma) * 255


def _defocus(image: Bytes, numbers: Any, draws: Draws, script: str) -> Floats:
    radius, alias = numbers
    reach = 8 if radius <= 8 else radius
    line = np.arange(-reach, reach + 1.0)
    disk = (np.hypot(*np.meshgrid(line, line)) <= radius + 1e-9).astype(np.float32)
    window = (3, 3) if radius <= 8 else (5, 5)
    kernel = cv2.GaussianBlur(disk / disk.sum(), window, alias).astype(float)
    planes = [correlate(plane, kernel, mode="mirror") for plane in (image / 255).transpose(2, 0, 1)]
    return np.stack(planes, axis=2) * 255


def _streaks(levels: Floats, radius: int, sigma: float, degrees: float) -> Floats:
    """ImageMagick's motion blur: 65536 values, written as levels by truncation."""
    steps = np.arange(2 * radius + 1)
    weights = np.exp(-(steps**2) / (2 * sigma**2))
    total = np.zeros(levels.shape)
    rows, columns = np.indices(levels.shape[:2])
    for step, weight in zip(steps, weights / weights.sum(), strict=True):
        down = math.ceil(step * math.sin(math.radians(degrees)) - 0.5)
        across = math.ceil(step * math.cos(math.radians(degrees)) - 0.5)
        places = (np.clip(rows + down, 0, len(levels) - 1), np.clip(columns + across, 0, len(levels) - 1))
        total += weight * levels[places] * 257
    return np.asarray(np.rint(total).astype(int) // 257, float)


def _motion(image: Bytes, numbers: Any, draws: Draws, script: str) -> Floats:
    return _streaks(image.astype(float), *numbers, float(draws[0]))


def _zoomed(field: NDArray[Any], factor: float) -> NDArray[Any]:
    """The middle of a square field, enlarged; what is more than the field is cut off on both sides."""
    side = len(field)
    kept = math.ceil(side / factor)
    start = (side - kept) // 2
    factors = (factor, factor, *[1] * (field.ndim - 2))
    large = zoom(field[start : start + kept, start : start + kept], factors, order=1)
    cut = (len(large) - side) // 2
    return np.asarray(large[cut : cut + side, cut : cut + side])


def _zoom(image: Bytes, numbers: Any, draws: Draws, script: str) -> Floats:
    end, step = numbers
    scene = (image / 255).astype(np.float32)
    zooms = [_zoomed(scene, float(factor)) for factor in np.arange(1, end, step)]
    return np.sum([scene, *zooms], axis=0) / (len(zooms) + 1) * 255


def _snow(image: Bytes, numbers: Any, draws: Draws, script: str) -> Floats:
    mean, deviation, factor, threshold, radius, sigma, kept = numbers
    angle, middle = draws
    side = len(image)
    noise = np.zeros((side, side))
    start = (side - len(middle)) // 2
    noise[start : start + len(middle), start : start + len(middle)] = middle
    flakes = _zoomed(mean + deviation * noise, factor)
    flakes[flakes < threshold] = 0
    flakes = np.floor(np.clip(flakes, 0, 1) * 255)
    flakes = _streaks(flakes, radius, sigma, float(angle))[..., None]
    grey = (image @ np.array([0.299, 0.587, 0.114]))[..., None]
    scene = kept * image + (1 - kept) * np.maximum(image, 1.5 * grey + 127.5)
    return np.asarray(scene + flakes + flakes[::-1, ::-1])


def _fog(image: Bytes, numbers: Any, draws: Draws, script: str) -> Floats:
    thickness, decay = numbers
    land = _landscape(iter(draws[0].tolist()), 2 ** math.ceil(math.log2(len(image))), decay)
    top = image.max() / 255
    lit = image / 255 + thickness * land[: len(image), : len(image), None]
    return lit * top / (top + thickness) * 255


def _landscape(chance: Any, side: int, decay: float) -> Floats:
    """Diamond-square on a torus, point by point, in the order of the draws."""
    land = np.zeros((side, side))
    step, height = side, 100.0

    def mean(points: list[tuple[int, int]]) -> float:
        return sum(float(land[row % side, column % side]) for row, column in points) / 4

    while step >= 2:
        half = step // 2
        grid = [(row, column) for row in range(0, side, step) for column in range(0, side, step)]
        for row, column in grid:
            corners = [(row + down, column + across) for down in (0, step) for across in (0, step)]
            land[row + half, column + half] = mean(corners) + height**2 * next(chance)
        for down, across in ((0, half), (half, 0)):
            for row, column in grid:
                place = (row + down, column + across)
                sides = [(place[0] + move, place[1]) for move in (-half, half)]
                sides += [(place[0], place[1] + move) for move in (-half, half)]
                land[place] = mean(sides) + height**2 * next(chance)
        step, height = half, height / decay
    return (land - land.min()) / (land.max() - land.min())


def _brightness(image: Bytes, added: float, draws: Draws, script: str) -> Floats:
    hue, saturation, value = np.moveaxis(rgb2hsv(image / 255), 2, 0)
    bright = np.clip(value + added, 0, 1)
    return np.asarray(hsv2rgb(np.stack([hue, saturation, bright], 2)) * 255)


def _saturate(image: Bytes, numbers: Any, draws: Draws, script: str) -> Floats:
    hue, saturation, value = np.moveaxis(rgb2hsv(image / 255), 2, 0)
    strong = np.clip(saturation * numbers[0] + numbers[1], 0, 1)
    return np.asarray(hsv2rgb(np.stack([hue, strong, value], 2)) * 255)


def _contrast(image: Bytes, share: float, draws: Draws, script: str) -> Floats:
    scene = image / 255
    mean = scene.mean((0, 1), keepdims=True)
    return np.asarray((mean + share * (scene - mean)) * 255)


def _jpeg(image: Bytes, quality: int, draws: Draws, script: str) -> Floats:
    file = BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file), float)


def _pixelate(image: Bytes, share: float, draws: Draws, script: str) -> Floats:
    side = len(image)
    small = Image.fromarray(image).resize((int(side * share),) * 2, Image.Resampling.BOX)
    return np.asarray(small.resize((side, side), Image.Resampling.BOX), float)


def _elastic(image: Bytes, numbers: Any, draws: Draws, script: str) -> Floats:
    moves, field = draws
    side = len(image)
    size, sigma, reach = (number * (244 if script == "imagenet_c" else side) for number in numbers)
    middle, third = side // 2, side // 3
    before = np.array([[1, 1], [1, -1], [-1, -1]]) * third + middle
    after = (before + (moves * reach).astype(np.float32)).astype(np.float32)
    scene = _affine(image.astype(float), before.astype(float), after.astype(float))
    if size == 0:
        return scene
    shifts = [gaussian_filter(part.astype(float), sigma, mode="reflect", truncate=3) * size for part in field]
    rows, columns = np.indices(image.shape[:2])
    places = [rows + shifts[1].astype(np.float32), columns + shifts[0].astype(np.float32)]
    planes = [map_coordinates(plane, places, order=1, mode="reflect") for plane in scene.transpose(2, 0, 1)]
    return np.stack(planes, axis=2)


def _affine(scene: Floats, before: Floats, after: Floats) -> Floats:
    """Bilinear, at places in 32nds of a pixel, with mirrored borders: OpenCV 3."""
    ones = np.ones((3, 1))
    back = np.linalg.solve(np.hstack([after, ones]), before).T  # (2, 3): where each pixel comes from
    line = np.arange(len(scene))
    places = [
        (np.rint(row[0] * line * 1024)[None] + np.rint((row[1] * line + row[2]) * 1024)[:, None] + 16) // 32
        for row in back
    ]
    across, down = (place / 32 for place in places)
    planes = [
        map_coordinates(plane, [down, across], order=1, mode="mirror") for plane in scene.transpose(2, 0, 1)
    ]
    return np.stack(planes, axis=2)


def _spatter(image: Bytes, numbers: Any, draws: Draws, script: str) -> Floats:
    mean, deviation, sigma, threshold, strength, mud = numbers
    liquid = _blur(mean + deviation * draws[0][0].astype(float), sigma)
    liquid[liquid < threshold] = 0
    if mud:
        cover = _blur((liquid > threshold).astype(np.float32), strength)
        cover = np.where(cover < 0.8, 0, cover)[..., None]
        return np.asarray(image * (1 - cover) + cover * np.array([63.0, 42.0, 20.0]))
    drops = (np.floor(liquid * 255) % 256).astype(np.uint8)
    far = cv2.distanceTransform(255 - cv2.Canny(drops, 50, 150), cv2.DIST_L2, 5)
    even = cv2.equalizeHist(cv2.blur(np.minimum(far, 20), (3, 3)).astype(np.uint8))
    lit = cv2.filter2D(even, cv2.CV_8U, np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]]))
    light = drops * cv2.blur(lit, (3, 3)).astype(np.float32)
    shine = (light / light.max() * strength)[..., None]
    return np.asarray(image + shine * np.array([175.0, 238.0, 238.0]))


FORMULAS: dict[str, Callable[[Bytes, Any, Draws, str], Floats]] = {
    "gaussian_noise": _noise,
    "speckle_noise": _speckle,
    "gaussian_blur": _gaussian_blur,
    "glass_blur": _glass,
    "defocus_blur": _defocus,
    "motion_blur": _motion,
    "zoom_blur": _zoom,
    "snow": _snow,
    "fog": _fog,
    "brightness": _brightness,
    "saturate": _saturate,
    "contrast": _contrast,
    "jpeg_compression": _jpeg,
    "pixelate": _pixelate,
    "elastic_transform": _elastic,
    "spatter": _spatter,
}
