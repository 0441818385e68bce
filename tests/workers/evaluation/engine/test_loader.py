"""Loading of images for a model, on the CPU and ahead of a device. Legend: n images."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.workers.data.formats.dataset import Levels
from assay.workers.evaluation.engine.loader import Loader, Stored
from tests.support.emulated_device.device import EmulatedDevice, emulated_device

N, BATCH = 7, 2
LEVELS = torch.randint(256, (N, 3, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


class Watched:
    """Loads levels by row, and notes who asks for what."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.asked: list[list[int]] = []
        self.threads: set[int] = set()
        self._fails_at = fails_at

    def __call__(self, rows: Sequence[int]) -> Levels:
        self.asked.append(list(rows))
        self.threads.add(threading.get_ident())
        if self._fails_at in rows:
            raise ValueError(f"image {self._fails_at} is damaged")
        return Levels(LEVELS[list(rows)], 255)


def loader(images: Any, device: torch.device | str = "cpu", dtype: Any = "float32") -> Loader:
    return Loader(
        nn.Flatten(),
        images,
        torch.arange(N),
        [*map(str, range(N))],
        batch_size=BATCH,
        device=device,
        dtype=dtype,
    )


def everything(found: Loader) -> Tensor:
    return torch.cat([found.images(rows).cpu() for rows in found.batches()])


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_levels_and_pixels_are_the_same_images_everywhere(dtype: Any) -> None:
    pixels = LEVELS.float() / 255
    wanted = pixels.double() if dtype == "float64" else pixels
    for images in (Watched(), Stored(Watched()), lambda rows: pixels[list(rows)]):
        assert torch.equal(everything(loader(images, dtype=dtype)), wanted)
        with emulated_device() as device:
            assert torch.equal(everything(loader(images, device.device, dtype)), wanted)


def sent_bytes(images: Any, device: EmulatedDevice) -> int:
    """Bytes of images that go to the device."""
    device.forget_counts()
    everything(loader(images, device.device, "float64"))
    assert not device.uploads, "nothing is sent from memory that is not pinned"
    return device.sent_bytes


def test_an_image_travels_as_its_levels_and_no_image_as_float64() -> None:
    with emulated_device() as device:
        assert sent_bytes(Stored(Watched()), device) == LEVELS.numel()
        assert sent_bytes(lambda rows: LEVELS[list(rows)] / 255, device) == 4 * LEVELS.numel()


def test_a_thread_reads_one_batch_ahead_of_a_device() -> None:
    images = Watched()
    before = threading.active_count()
    with emulated_device() as device:
        found = loader(Stored(images), device.device)
        batches = found.batches()
        found.images(next(batches))
        found.images(next(batches))
        assert images.asked[:2] == [[0, 1], [2, 3]]
        assert threading.get_ident() not in images.threads
        batches.close()  # type: ignore[attr-defined]
        assert len(images.asked) <= 3, "one ahead"
        assert threading.active_count() == before
        found.images(torch.tensor([6]))  # not ahead
        assert images.asked[-1] == [6]


def test_what_was_read_ahead_is_given_for_its_own_rows_alone() -> None:
    with emulated_device() as device:
        found = loader(Stored(Watched()), device.device)
        for rows in found.batches():
            assert torch.equal(found.images(rows[-1:]).cpu(), LEVELS[rows[-1:]].float() / 255)
            assert torch.equal(found.images(rows).cpu(), LEVELS[rows].float() / 255)
            assert torch.equal(found.images(rows).cpu(), LEVELS[rows].float() / 255)


def test_images_that_are_made_and_all_images_for_the_cpu_are_read_when_they_are_asked_for() -> None:
    with emulated_device() as device:
        for stored, place in ((True, "cpu"), (False, device.device)):
            images = Watched()
            found = loader(Stored(images) if stored else images, place)
            for number, rows in enumerate(found.batches()):
                assert len(images.asked) == number
                found.images(rows)
            assert images.threads == {threading.get_ident()}


def test_an_image_that_cannot_be_read_is_an_error_at_its_batch() -> None:
    with emulated_device() as device:
        batches = loader(Stored(Watched(fails_at=4)), device.device).batches()
        assert [next(batches).tolist() for _ in range(2)] == [[0, 1], [2, 3]]
        with pytest.raises(ValueError, match="image 4 is damaged"):
            next(batches)


def test_levels_above_white_and_pixels_outside_the_range_are_refused() -> None:
    with pytest.raises(ValueError, match=r"go up to 2\.0"):
        loader(lambda _: Levels(torch.tensor([[[[32]]]], dtype=torch.uint8), 16)).images(torch.tensor([0]))
    with pytest.raises(ValueError, match=r"these go from 0\.0 to 1\.5"):
        loader(lambda _: torch.tensor([[[[0.0, 1.5]]]])).images(torch.tensor([0]))


def test_tokens_stay_whole_numbers() -> None:
    tokens = torch.arange(N * 3).view(N, 3)
    with emulated_device() as device:
        found = everything(loader(lambda rows: tokens[list(rows)], device.device))
    assert torch.equal(found, tokens)
