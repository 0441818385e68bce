"""Corrupted whole images by windows: at which size they are corrupted, and what is counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.attacks.corruptions.fog import fog
from assay.attacks.corruptions.pixelate import pixelate
from assay.service.catalog.catalog import load
from assay.service.metrics.statistics.corrupted_pixel_counts import read
from assay.workers.catalog import build
from assay.workers.data.formats.segmentation import IGNORE
from assay.workers.evaluation.engine.segmentation.pixel_counts import PixelCounts
from assay.workers.evaluation.sliding_window import sliding_window
from tests.support.shards import Given, shard

CLASSES = 3
SIZES = [(20, 31), (37, 18), (9, 12), (16, 16)]
WINDOWS = {"short_side": 14, "window": 10, "stride": 6}
CELLS = {"corruptions": ["fog", "pixelate"], "severities": [4, 2]}
KERNELS = [fog(severity=2), fog(severity=4), pixelate(severity=2), pixelate(severity=4)]


class Convolution(nn.Module):
    """Logits that depend on the whole window, so that it matters where windows are."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng([]):
            torch.manual_seed(0)
            self.layer = nn.Conv2d(3, CLASSES, 5, padding=2).double()

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.layer(images - images.mean(dim=(1, 2, 3), keepdim=True))
        return logits


def example(row: int) -> tuple[Tensor, Tensor]:
    draws = torch.Generator().manual_seed(row)
    height, width = SIZES[row]
    labels = torch.randint(0, CLASSES + 1, (height, width), generator=draws, dtype=torch.uint8)
    labels[labels == CLASSES] = IGNORE
    return torch.randint(0, 256, (3, height, width), generator=draws, dtype=torch.uint8), labels


def run(
    evaluation: Any, model: nn.Module | None = None, rows: Sequence[int] = range(4), **changes: Any
) -> Any:
    ids, examples = [f"image {row}" for row in range(len(SIZES))], changes.pop("example_of", example)
    data = Given(ids, task="segmentation", classes=CLASSES, example=examples)
    common = {"image_size": 10, "dtype": "float64"}
    return evaluation.measure(shard(model or Convolution(), data, rows, **{**common, **changes}))


def corrupted(**changes: Any) -> Any:
    return build("evaluation", "sliding_window_corruptions", {**WINDOWS, **CELLS, **changes})()


def test_each_cell_is_the_sliding_window_over_images_that_were_corrupted_at_their_own_size() -> None:
    found: PixelCounts = run(corrupted())
    clean = run(sliding_window(**WINDOWS))  # type: ignore[arg-type]
    for name in ("intersection", "target", "predicted"):
        assert torch.equal(getattr(found, name), getattr(clean, name))
    assert torch.equal(found.forward, 5 * clean.forward)
    assert found.corrupted is not None
    cells = [text.split(";") for text in found.corrupted]
    for number, kernel in enumerate(KERNELS):

        def changed(row: int, kernel: Any = kernel) -> tuple[Tensor, Tensor]:
            pixels, labels = example(row)
            image = kernel(pixels[None].double() / 255, [f"image {row}"], 0)[0]
            assert not torch.equal(image, pixels.double() / 255)
            return (image * 255).round().to(torch.uint8), labels

        by_hand = run(sliding_window(**WINDOWS), example_of=changed)  # type: ignore[arg-type]
        for row in range(len(SIZES)):
            parts = (by_hand.intersection[row].tolist(), by_hand.predicted[row].tolist())
            expected = [(c, i, p) for c, (i, p) in enumerate(zip(*parts, strict=True)) if p]
            assert read(cells[row][number]) == expected


@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_neither_batches_nor_shards_matter_but_the_seed_does(batch_size: int) -> None:
    whole = run(corrupted()).columns()
    assert run(corrupted(), batch_size=batch_size).columns() == whole
    parts = [run(corrupted(), rows=rows).columns() for rows in ((0,), (1, 2, 3))]
    assert {name: parts[0][name] + parts[1][name] for name in whole} == whole
    assert run(corrupted(), seed=1).columns()["corrupted_pixels"] != whole["corrupted_pixels"]


def test_every_corruption_takes_images_of_any_shape() -> None:
    names = [*load().names("corruption")]
    assert len(names) == 19
    found: PixelCounts = run(corrupted(corruptions=names, severities=[3]))
    judged = [int((example(row)[1] != IGNORE).sum()) for row in range(len(SIZES))]
    assert found.corrupted is not None
    for text, pixels in zip(found.corrupted, judged, strict=True):
        assert [sum(given for *_, given in read(cell)) for cell in text.split(";")] == [pixels] * 19


def test_an_image_with_logits_that_are_not_finite_counts_once_and_progress_counts_images() -> None:
    class Broken(Convolution):
        def forward(self, images: Tensor) -> Tensor:
            return super().forward(images).index_fill(1, torch.tensor(1), torch.inf)

    told: list[int] = []
    counts = run(corrupted(), Broken(), progress=told.append)
    assert counts.evidence() == {"nonfinite": len(SIZES)}
    assert told == [1, 2, 3, 4]
    with pytest.raises(ValueError, match="no images"):
        run(corrupted(), rows=[])


def test_the_passes_that_are_declared_are_those_of_the_windows_for_each_cell() -> None:
    windows = {"short_side": 512, "window": 512, "stride": 512}
    of_one = load().find("evaluation", "sliding_window").passes_with(windows)
    assert of_one is not None
    component = load().find("evaluation", "sliding_window_corruptions")
    cells = {"corruptions": ["fog", "snow"], "severities": [1, 2, 3]}
    assert component.passes_with({**windows, **cells}) == (7 * of_one[0], 0)
    defaults = {name: part["default"] for name, part in component.parameters["properties"].items()}
    assert component.passes_with(defaults) == (76 * of_one[0], 0)
