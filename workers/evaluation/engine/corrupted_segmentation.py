"""Segmentation of corrupted images in the size of the model, which are made while they are needed.

Kamann and Rother, "Benchmarking the Robustness of Semantic Segmentation Models", CVPR 2020, corrupt images as
ImageNet-C does. Here a batch of squares is corrupted at a time, and never kept; `workers/evaluation/
sliding_window_corruptions.py` is for whole images at their own size.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from assay.attacks.corruptions.imaging.corruption import Corruption
from assay.attacks.kernel import frozen
from assay.workers.evaluation.cell_tally import CellTally
from assay.workers.evaluation.engine.loader import DType, Images, Loader, Progress
from assay.workers.evaluation.engine.segmentation import Maps, PixelCounts


def segment_corrupted(
    model: nn.Module,
    images_of: Images,
    maps_of: Maps,
    ids: Sequence[str],
    *,
    kernels: Sequence[Corruption],
    seed: int,
    classes: int,
    batch_size: int,
    device: torch.device | str = "cpu",
    dtype: DType = "float32",
    progress: Progress | None = None,
) -> PixelCounts:
    """Runs the model on each image as it is, and under each corruption; the arguments are those of `segment`.

    `kernels` are the corruptions; `seed`, the job's, and the example ids decide what chance does in them.

    Raises:
        ValueError: If there are no images, they are outside [0, 1], or the logits have another shape.
    """
    loader = Loader(model, images_of, None, ids, batch_size, device, dtype)
    tally, done = CellTally(ids, classes), 0
    with torch.no_grad(), frozen(model):
        for rows in loader.batches():
            (images, logits), maps = loader.load(rows), maps_of(rows.tolist())
            names = [ids[row] for row in rows.tolist()]
            _note(tally, rows, logits, maps, classes, clean=True)
            for kernel in kernels:
                corrupted = loader.forward(kernel(images, names, seed))
                _note(tally, rows, corrupted, maps, classes, clean=False)
            done += len(rows)
            if progress is not None:
                progress(done)
    return tally.counts(loader.noted())


def _note(tally: CellTally, rows: Tensor, logits: Tensor, maps: Tensor, classes: int, *, clean: bool) -> None:
    wanted = (len(rows), classes, *maps.shape[1:])
    if logits.shape != wanted:
        raise ValueError(f"the model must give logits {wanted}, it gave {tuple(logits.shape)}")
    finite = logits.isfinite().all(dim=1)  # (B, H, W)
    prediction = logits.argmax(dim=1).masked_fill(~finite, classes).cpu()
    whole = finite.flatten(1).all(dim=1).cpu()
    tally.note(rows, prediction, maps, finite=whole, passes=1, clean=clean)
