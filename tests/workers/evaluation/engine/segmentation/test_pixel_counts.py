"""Counting pixels: by hand, over batches, and where logits are not finite."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from assay.workers.data.formats.segmentation import IGNORE
from assay.workers.evaluation.engine.segmentation.pixel_counts import PixelCounts, count_pixels, segment

CLASSES = 3


class Thresholds(nn.Module):
    """Calls dark pixels 0, grey ones 1 and light ones 2; black ones get logits that are not finite."""

    def forward(self, images: Tensor) -> Tensor:
        grey = images[:, 0]
        kinds = torch.stack([grey < 0.3, (grey >= 0.3) & (grey < 0.6), grey >= 0.6], dim=1)
        return torch.where(grey[:, None] == 0, torch.nan, kinds.to(images.dtype))


IMAGES = torch.tensor(
    [
        [[0.1, 0.4, 0.9], [0.1, 0.4, 0.9]],
        [[0.9, 0.9, 0.9], [0.0, 0.9, 0.1]],
        [[0.5, 0.5, 0.5], [0.5, 0.5, 0.5]],
    ]
)[:, None]
MAPS = torch.tensor(
    [
        [[0, 1, 2], [1, 1, IGNORE]],
        [[2, 2, 2], [0, 0, 0]],
        [[IGNORE] * 3, [IGNORE] * 3],
    ],
    dtype=torch.uint8,
)


def run(batch_size: int = 2, rows: Sequence[int] = (0, 1, 2), model: nn.Module | None = None) -> PixelCounts:
    chosen = torch.tensor(list(rows))
    return segment(
        model or Thresholds(),
        lambda indices: IMAGES[chosen][list(indices)],
        lambda indices: MAPS[chosen][list(indices)],
        [f"image {row}" for row in rows],
        classes=CLASSES,
        batch_size=batch_size,
    )


def test_counts_by_hand() -> None:
    counts = run()
    assert counts.intersection.tolist() == [[1, 2, 1], [1, 0, 3], [0, 0, 0]]
    assert counts.target.tolist() == [[1, 3, 1], [3, 0, 3], [0, 0, 0]]
    # The pixel whose logits are not finite was given no class, and the ignored ones do not count.
    assert counts.predicted.tolist() == [[2, 2, 1], [1, 0, 4], [0, 0, 0]]
    assert counts.nonfinite == 1
    assert counts.evidence() == {"nonfinite": 1}
    assert (counts.forward.tolist(), counts.backward.tolist()) == ([1, 1, 1], [0, 0, 0])


def test_columns_are_plain_and_named_by_their_ids() -> None:
    columns = run().columns()
    assert columns["id"] == ["image 0", "image 1", "image 2"]
    assert columns["target"] == [[1, 3, 1], [3, 0, 3], [0, 0, 0]]
    assert {len(column) for column in columns.values()} == {3}


@pytest.mark.parametrize("batch_size", [1, 3, 50])
def test_batches_and_shards_change_nothing(batch_size: int) -> None:
    whole = run().columns()
    assert run(batch_size).columns() == whole
    parts = [run(batch_size, rows).columns() for rows in ((0,), (1, 2))]
    assert {name: parts[0][name] + parts[1][name] for name in whole} == whole


def test_a_class_beyond_the_byte_of_the_maps() -> None:
    prediction = torch.full((1, 1, 2), 254)
    maps = torch.tensor([[[254, IGNORE]]], dtype=torch.uint8)
    counts = count_pixels(prediction, maps, 255)
    assert counts[0, :, 254].tolist() == [1, 1, 1]
    assert counts.sum() == 3


def test_progress_is_told_and_the_model_left_as_it_was() -> None:
    model, told = Thresholds().train(), []
    segment(
        model,
        lambda indices: IMAGES[list(indices)],
        lambda indices: MAPS[list(indices)],
        ["a", "b", "c"],
        classes=CLASSES,
        batch_size=2,
        progress=told.append,
    )
    assert told == [2, 3]
    assert model.training


def test_logits_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match=r"must give logits \(2, 3, 2, 3\), it gave \(2, 6\)"):
        run(model=nn.Flatten())
