"""Sliding windows: where they are, what is averaged, and that every pixel of the file is judged."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from assay.service.catalog.catalog import load
from assay.workers.data.formats.segmentation import IGNORE
from assay.workers.evaluation import sliding_window as module
from assay.workers.evaluation.engine.segmentation.pixel_counts import PixelCounts
from assay.workers.evaluation.sliding_window import SlidingWindow, sliding_window
from assay.workers.evaluation.sliding_window_corruptions import sliding_window_corruptions
from tests.support.emulated_device.device import emulated_device
from tests.support.shards import Given, shard

CLASSES = 5
SIZES = [(16, 16), (20, 31), (37, 18), (9, 12), (40, 12)]


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


class Network(nn.Module):
    """A convolution in float32; notes the windows of each pass."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng([]):
            torch.manual_seed(0)
            self.layer = nn.Conv2d(3, CLASSES, 5, padding=2)
        self.rows: list[int] = []

    def forward(self, images: Tensor) -> Tensor:
        self.rows.append(len(images))
        logits: Tensor = self.layer(images.to(self.layer.weight.dtype)).to(images.dtype)
        return logits


class OfPixels(nn.Module):
    """Each pixel's class is that of its brightness, wherever the windows are."""

    def forward(self, images: Tensor) -> Tensor:
        levels = torch.linspace(0, 1, CLASSES, dtype=images.dtype).view(1, -1, 1, 1)
        return -(images[:, :1] - levels).abs()


def example(row: int) -> tuple[Tensor, Tensor]:
    draws = torch.Generator().manual_seed(row)
    height, width = SIZES[row]
    labels = torch.randint(0, CLASSES + 1, (height, width), generator=draws, dtype=torch.uint8)
    labels[labels == CLASSES] = IGNORE
    return torch.randint(0, 256, (3, height, width), generator=draws, dtype=torch.uint8), labels


def run(evaluation: SlidingWindow, model: nn.Module, rows: Sequence[int] = range(5), **changes: Any) -> Any:
    ids = [f"image {row}" for row in range(len(SIZES))]
    data = Given(ids, task="segmentation", classes=CLASSES, example=example)
    return evaluation.measure(shard(model, data, rows, **{"image_size": 12, "dtype": "float64", **changes}))


def by_hand(model: nn.Module, row: int, *, short: int | None, window: int, stride: int, soft: bool) -> Tensor:
    """The prediction, written out without canvases and batches."""
    pixels, labels = example(row)
    height, width = labels.shape
    image = pixels[None].double() / 255
    factor = (short or min(height, width)) / min(height, width)
    size = [int(side * factor + 0.5) for side in (height, width)]
    if min(size) < window:
        size = [int(side * (window / min(size))) for side in size]
    if size != [height, width]:
        image = interpolate(image.float(), size=size, mode="bilinear").double()
    total, times = torch.zeros(1, CLASSES, *size, dtype=torch.float64), torch.zeros(size)
    tops, lefts = ([*range(0, side - window, stride), side - window] for side in size)
    for top in tops:
        for left in lefts:
            logits = model(image[:, :, top : top + window, left : left + window])
            total[:, :, top : top + window, left : left + window] += logits.softmax(1) if soft else logits
            times[top : top + window, left : left + window] += 1
    return interpolate(total / times, size=(height, width), mode="bilinear")[0].argmax(0)


@pytest.mark.parametrize(
    ("short", "window", "stride", "soft"),
    [(None, 12, 12, False), (None, 12, 7, True), (24, 12, 5, False), (12, 12, 12, True), (16, 8, 8, False)],
)
def test_equals_the_protocol_written_out(short: int | None, window: int, stride: int, soft: bool) -> None:
    model = Convolution()
    average = "probabilities" if soft else "logits"
    counts = run(sliding_window(short_side=short, window=window, stride=stride, average=average), model)
    for row in range(len(SIZES)):
        prediction = by_hand(model, row, short=short, window=window, stride=stride, soft=soft)
        labels = example(row)[1]
        judged = labels != IGNORE
        for label in range(CLASSES):
            found = judged & (prediction == label) & (labels == label)
            assert counts.intersection[row, label] == found.sum()
            assert counts.target[row, label] == (labels == label).sum()
            assert counts.predicted[row, label] == (judged & (prediction == label)).sum()


def test_every_pixel_of_the_file_is_judged_once() -> None:
    counts = run(sliding_window(short_side=16, window=8, stride=3), OfPixels())
    for row in range(len(SIZES)):
        judged = int((example(row)[1] != IGNORE).sum())
        assert counts.target[row].sum() == counts.predicted[row].sum() == judged


def test_where_windows_are_does_not_matter_to_a_model_of_single_pixels() -> None:
    whole = run(sliding_window(short_side=None, window=9, stride=9), OfPixels())
    overlapping = run(sliding_window(short_side=None, window=5, stride=2), OfPixels())
    assert torch.equal(whole.intersection, overlapping.intersection)
    assert torch.equal(whole.predicted, overlapping.predicted)


def test_windows_are_counted_as_passes() -> None:
    evaluation = sliding_window(short_side=None, window=12, stride=12)
    assert [evaluation.anchors(length) for length in (12, 13, 24, 25)] == [[0], [0, 1], [0, 12], [0, 12, 13]]
    counts = run(evaluation, OfPixels())
    # 16 x 16; 20 x 31; 37 x 18; 9 x 12, enlarged to 12 x 16; 40 x 12.
    assert counts.forward.tolist() == [4, 6, 8, 2, 4]
    assert counts.backward.sum() == 0


@pytest.mark.parametrize(("short", "window", "stride"), [(512, 512, 512), (300, 224, 100), (100, 224, 224)])
def test_the_passes_that_are_declared_are_those_of_long_images(short: int, window: int, stride: int) -> None:
    evaluation = sliding_window(short_side=short, window=window, stride=stride)
    params = {"short_side": short, "window": window, "stride": stride}
    declared = load().find("evaluation", "sliding_window").passes_with(params)
    if short >= window:
        tops, lefts = (evaluation.anchors(length) for length in evaluation.size_of(1000, 4000))
        assert declared == (len(tops) * len(lefts), 0)
    else:
        assert declared == (2, 0)  # 400 pixels of 224 at a time
    assert load().find("evaluation", "sliding_window").passes_with({**params, "short_side": None}) is None


def test_long_images_are_never_smaller_than_a_window() -> None:
    evaluation = sliding_window(short_side=32, window=32)
    # First 13 x 128, since the long side is at most four windows; then as large as a window asks for.
    assert evaluation.size_of(100, 1000) == (32, 315)
    assert evaluation.size_of(1000, 100) == (315, 32)
    assert evaluation.size_of(64, 96) == (32, 48)
    assert sliding_window(short_side=None, window=32).size_of(40, 100) == (40, 100)


@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_batches_shards_and_parts_of_the_classes_change_nothing(
    batch_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluation, model = sliding_window(short_side=16, window=8, stride=5), Convolution()
    whole = run(evaluation, model).columns()
    monkeypatch.setattr(module, "RESIZED_CLASSES", 2)
    assert run(evaluation, model, batch_size=batch_size).columns() == whole
    parts = [run(evaluation, model, rows).columns() for rows in ((0, 1), (2, 3, 4))]
    assert {name: parts[0][name] + parts[1][name] for name in whole} == whole


def test_a_batch_has_no_more_pixels_than_was_asked_for() -> None:
    seen = []
    model = OfPixels()
    model.register_forward_hook(lambda _module, given, _logits: seen.append(given[0].shape))
    run(sliding_window(short_side=32, window=24, stride=24), model, image_size=24, batch_size=3)
    assert {shape[0] for shape in seen[:-1]} == {3}
    seen.clear()
    run(sliding_window(short_side=32, window=24, stride=24), model, image_size=12, batch_size=3)
    assert {tuple(shape) for shape in seen} == {(1, 3, 24, 24)}


CORRUPTED = functools.partial(sliding_window_corruptions, corruptions=["brightness"], severities=[2])


@pytest.mark.parametrize(("made", "views"), [(sliding_window, 1), (CORRUPTED, 2)])
def test_windows_of_images_of_any_size_fill_passes_and_the_host_never_waits_for_the_device(
    made: Any, views: int
) -> None:
    evaluation = made(short_side=16, window=8, stride=5)
    whole = run(evaluation, Network(), dtype="float32")
    with emulated_device() as device:
        model = Network().to(device.device)
        device.forget_counts()
        found = run(evaluation, model, image_size=8, batch_size=16, dtype="float32", device=device.device)
        windows = int(whole.forward.sum())
        assert model.rows == [16] * (windows // 16) + [windows % 16] * (windows % 16 > 0)
        assert not device.waits
        assert not device.uploads
        assert device.event_waits == views * len(SIZES)
    assert found.columns() == whole.columns()


def test_one_image_alone_has_scores_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    open_now: set[int] = set()
    most = 0
    add, judged = module._Canvas.add, module._Canvas.judged

    def adding(self: Any, *given: Any) -> bool:
        nonlocal most
        open_now.add(id(self))
        most = max(most, len(open_now))
        return add(self, *given)

    def judging(self: Any, *given: Any) -> Any:
        open_now.remove(id(self))
        return judged(self, *given)

    monkeypatch.setattr(module._Canvas, "add", adding)
    monkeypatch.setattr(module._Canvas, "judged", judging)
    model = Network()
    run(sliding_window(short_side=16, window=12, stride=12), model, image_size=120)
    assert len(model.rows) == 1  # a pass with the windows of all images
    assert most == 1
    assert not open_now


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("label", [0, 1, CLASSES - 1])
@pytest.mark.parametrize("parts", [2, CLASSES])
def test_pixels_whose_logits_are_not_finite_are_wrong(
    value: float, label: int, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RESIZED_CLASSES", parts)

    class Broken(OfPixels):
        def forward(self, images: Tensor) -> Tensor:
            logits = super().forward(images)
            return logits.index_put(
                (torch.tensor(0), torch.tensor(label)), torch.tensor(value, dtype=logits.dtype)
            )

    counts: PixelCounts = run(sliding_window(short_side=None, window=16, stride=16), Broken(), rows=[0])
    assert counts.evidence() == {"nonfinite": 1}
    assert counts.predicted.sum() == 0
    assert counts.target.sum() > 0


def test_progress_mode_and_wrong_logits() -> None:
    told: list[int] = []
    model = OfPixels().train()
    run(sliding_window(short_side=None, window=8, stride=8), model, progress=told.append)
    assert told == [1, 2, 3, 4, 5]
    assert model.training
    with pytest.raises(ValueError, match=r"must give logits \(4, 5, 8, 8\), it gave"):
        run(sliding_window(short_side=None, window=8, stride=8), nn.Identity(), image_size=8)
    with pytest.raises(ValueError, match="no images"):
        run(sliding_window(), model, rows=[])
