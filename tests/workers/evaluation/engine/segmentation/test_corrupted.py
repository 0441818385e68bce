"""Corrupted squares: what is counted, and that batches and shards do not matter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.attacks.corruptions.contrast import contrast
from assay.attacks.corruptions.gaussian_noise import gaussian_noise
from assay.service.metrics.statistics.corrupted_pixel_counts import read
from assay.workers.catalog import build
from assay.workers.data.formats.segmentation import IGNORE
from assay.workers.evaluation.engine.segmentation.corrupted import segment_corrupted
from assay.workers.evaluation.engine.segmentation.pixel_counts import PixelCounts, count_pixels, segment

CLASSES, N, SIDE = 4, 6, 12
IDS = [f"image {row}" for row in range(N)]
KERNELS = [gaussian_noise(severity=2), gaussian_noise(severity=5), contrast(severity=4)]


class OfLevels(nn.Module):
    """Each pixel's class is that of its brightness."""

    def forward(self, images: Tensor) -> Tensor:
        levels = torch.linspace(0, 1, CLASSES, dtype=images.dtype).view(1, -1, 1, 1)
        return -(images[:, :1] - levels).abs()


def pixels(rows: Sequence[int]) -> Tensor:
    draws = [torch.rand(3, SIDE, SIDE, generator=torch.Generator().manual_seed(row)) for row in rows]
    return (torch.stack(draws) * 255).round() / 255


def maps(rows: Sequence[int]) -> Tensor:
    with torch.no_grad():
        labels = OfLevels()(pixels(rows)).argmax(1).to(torch.uint8)
    labels[:, 0] = IGNORE
    return labels


def run(rows: range = range(N), model: nn.Module | None = None, **changes: Any) -> PixelCounts:
    chosen, common = list(rows), {"kernels": KERNELS, "seed": 0, "classes": CLASSES, "batch_size": 4}
    return segment_corrupted(
        model or OfLevels(),
        lambda places: pixels([chosen[place] for place in places]),
        lambda places: maps([chosen[place] for place in places]),
        [IDS[row] for row in rows],
        **(common | changes),  # type: ignore[arg-type]
    )


def test_each_cell_has_the_counts_of_that_corrupted_image() -> None:
    counts = run()
    clean = segment(OfLevels(), pixels, maps, IDS, classes=CLASSES, batch_size=4)
    for name in ("intersection", "target", "predicted"):
        assert torch.equal(getattr(counts, name), getattr(clean, name))
    assert counts.corrupted is not None
    assert counts.forward.tolist() == [4] * N
    for row, text in enumerate(counts.corrupted):
        for kernel, cell in zip(KERNELS, text.split(";"), strict=True):
            prediction = OfLevels()(kernel(pixels([row]), [IDS[row]], 0)).argmax(1)
            found, _, given = count_pixels(prediction, maps([row]), CLASSES)[0].tolist()
            expected = [(c, found[c], given[c]) for c in range(CLASSES) if given[c]]
            assert read(cell) == expected
            assert sum(given) == SIDE * (SIDE - 1)  # the first row counts for nothing


def test_neither_batches_nor_shards_matter_but_the_seed_does() -> None:
    whole = run().columns()
    assert run(batch_size=1).columns() == whole
    parts = [run(rows).columns() for rows in (range(2), range(2, N))]
    assert {name: parts[0][name] + parts[1][name] for name in whole} == whole
    assert run(seed=1).columns()["corrupted_pixels"] != whole["corrupted_pixels"]


def test_an_image_with_logits_that_are_not_finite_counts_once() -> None:
    class Broken(OfLevels):
        def forward(self, images: Tensor) -> Tensor:
            return super().forward(images).index_fill(1, torch.tensor(0), torch.nan)

    counts = run(model=Broken())
    assert counts.evidence() == {"nonfinite": N}
    assert set(counts.columns()["corrupted_pixels"]) == {";;"}


def test_progress_mode_and_wrong_logits() -> None:
    told: list[int] = []
    model = OfLevels().train()
    run(model=model, progress=told.append)
    assert (told, model.training) == ([4, 6], True)
    with pytest.raises(ValueError, match=r"must give logits \(4, 4, 12, 12\), it gave"):
        run(model=nn.Identity())


def test_the_component_has_the_kernels_in_the_order_of_the_breakdown() -> None:
    params = {"corruptions": ["fog", "snow", "fog"], "severities": [5, 1]}
    component = build("evaluation", "corruptions", params)()
    assert [(kernel.name, kernel.severity) for kernel in component.kernels] == [
        ("fog", 1), ("fog", 5), ("snow", 1), ("snow", 5)
    ]  # fmt: skip
