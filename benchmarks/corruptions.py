"""Speed of the corruptions against `imagecorruptions-imaug`, in one run: `python -m benchmarks.corruptions`.

Crops of scikit-learn's two photographs. The library gets one image at a time, as it requires; ours a batch.
On a CPU both sides have one thread; compare CPU time of the
process: wall time depends on other load. Each side's time is its fastest turn.
With `--device cuda` ours runs on the GPU and wall time counts, up to the end of the GPU's work; the images
are already on the GPU. The last line is the rate of the whole ImageNet-C: the fifteen at all severities, with
the authors' constants, through JPEG files.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from imagecorruptions import corrupt, get_corruption_names
from sklearn.datasets import load_sample_images
from torch import Tensor

from assay.attacks.corruptions.imaging.corruption import Corruption
from assay.workers.evaluation.engine.corruption_kernels import corruption_kernels

FIFTEEN = tuple(get_corruption_names("common"))
EXTRA = tuple(get_corruption_names("validation"))


def crops(count: int, size: int) -> Tensor:
    """Byte images (count, size, size, 3) from positions spread over the photographs."""
    photographs = load_sample_images().images
    found = []
    for number in range(count):
        photograph = photographs[number % len(photographs)]
        height, width = photograph.shape[:2]
        top, left = 37 * number % (height - size + 1), 61 * number % (width - size + 1)
        found.append(torch.from_numpy(photograph[top : top + size, left : left + size].copy()))
    return torch.stack(found)


def ours(name: str, severity: int) -> Corruption:
    """Native corruption, with the steps and constants of the library."""
    made: Corruption = getattr(importlib.import_module(f"assay.attacks.corruptions.{name}"), name)(
        severity=severity, constants="imagecorruptions"
    )
    return made


def compare(
    name: str, images: Tensor, severity: int, turns: int, device: torch.device
) -> tuple[float, float]:
    """Seconds per image of the library and the native corruption, fastest turn of each."""
    corruption = ours(name, severity)
    batch = (images.permute(0, 3, 1, 2).float() / 255).contiguous().to(device)
    ids = [str(number) for number in range(len(images))]
    arrays = [image.numpy() for image in images]

    def library() -> None:
        for array in arrays:
            corrupt(array, severity=severity, corruption_name=name)

    def batched() -> None:
        corruption(batch, ids, 0)
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    clock = time.process_time if device.type == "cpu" else time.perf_counter
    seconds: dict[Callable[[], None], float] = {}
    for turn in range(turns + 1):
        for side in (library, batched):
            start = clock()
            side()
            if turn:  # the first turn compiles and fills caches
                seconds[side] = min(seconds.get(side, float("inf")), clock() - start)
    return seconds[library] / len(images), seconds[batched] / len(images)


def imagenet_c_rate(images: Tensor, severities: Sequence[int], device: torch.device, turns: int) -> float:
    """Corrupted images a second that leave the files of ImageNet-C; the fastest of several turns."""
    cells = [(name, severity) for name in FIFTEEN for severity in severities]
    kernels = corruption_kernels(cells, "imagenet_c", as_files=True)
    batch = (images.permute(0, 3, 1, 2).float() / 255).contiguous().to(device)
    ids = [str(number) for number in range(len(images))]
    seconds = []
    for _ in range(turns + 1):  # the first turn fills caches
        start = time.perf_counter()
        for kernel in kernels:
            kernel(batch, ids, 0)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - start)
    return len(cells) * len(images) / min(seconds[1:])


def main() -> None:
    """Print a line for each corruption, the sum over the fifteen, and the rate of ImageNet-C."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--severity", type=int, default=3, choices=range(1, 6))
    parser.add_argument("--images", type=int, default=16)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    np.random.seed(0)
    images = crops(options.images, options.size)
    write = sys.stdout.write
    title = f"severity {options.severity}"
    write(f"{title:20s}{'library':>10s}{'ours':>10s}{'ratio':>8s}   ms per image\n")
    sums = {"the 15": [0.0, 0.0], "the 4 extra": [0.0, 0.0]}
    for name in (*FIFTEEN, *EXTRA):
        device = torch.device(options.device)
        theirs, mine = compare(name, images, options.severity, options.turns, device)
        write(f"{name:20s}{1e3 * theirs:10.2f}{1e3 * mine:10.2f}{theirs / mine:8.1f}\n")
        total = sums["the 15" if name in FIFTEEN else "the 4 extra"]
        total[0], total[1] = total[0] + theirs, total[1] + mine
    for name, (theirs, mine) in sums.items():
        write(f"{name:20s}{1e3 * theirs:10.2f}{1e3 * mine:10.2f}{theirs / mine:8.1f}\n")
    if options.device == "cuda":
        rate = imagenet_c_rate(crops(256, options.size), range(1, 6), torch.device("cuda"), options.turns)
        write(f"ImageNet-C: {rate:.0f} images a second\n")


if __name__ == "__main__":
    main()
