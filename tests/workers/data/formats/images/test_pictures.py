"""Reading of pictures: bits, orientation, sizes and crops, and files that are no pictures."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from assay.workers.data.formats.dataset import CorruptData
from assay.workers.data.formats.images.pictures import (
    as_picture,
    fitted,
    in_threads,
    open_picture,
    picture_size,
    pixels_of,
    resize_and_crop,
)

NEAREST = Image.Resampling.NEAREST


def gradient(width: int, height: int) -> Image.Image:
    """Each pixel's value is its column, and twice its row."""
    rows, columns = np.mgrid[:height, :width]
    return Image.fromarray(np.stack([columns, 2 * rows, 0 * rows], axis=2).astype(np.uint8))


def test_16_bits_of_grey_keep_the_upper_8(tmp_path: Path) -> None:
    levels = np.array([[0, 255, 256, 65535, 0x1234]], dtype=np.uint16)
    Image.fromarray(levels).save(tmp_path / "a.png")
    picture = open_picture(tmp_path / "a.png")
    assert picture.mode == "L"
    assert np.asarray(picture).tolist() == [[0, 0, 1, 255, 0x12]]
    assert np.asarray(open_picture(tmp_path / "a.png", mode="RGB"))[0, 4].tolist() == [0x12] * 3


def test_32_bits_are_refused(tmp_path: Path) -> None:
    Image.fromarray(np.zeros((2, 2), dtype=np.float32)).save(tmp_path / "a.tiff")
    with pytest.raises(CorruptData, match=r"a\.tiff has 32 bits per channel; save it with 8 or 16"):
        open_picture(tmp_path / "a.tiff")


@pytest.mark.parametrize("orientation", [1, 3, 6])
def test_an_orientation_turns_where_it_is_asked_for(tmp_path: Path, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = gradient(3, 2)
    stored.save(tmp_path / "a.png", exif=exif)
    turns = {1: 0, 3: 2, 6: -1}[orientation]
    turned = np.rot90(np.asarray(stored), turns)
    assert np.array_equal(open_picture(tmp_path / "a.png"), stored)
    assert np.array_equal(open_picture(tmp_path / "a.png", exif_orientation=True), turned)


def test_a_picture_of_16_bits_keeps_its_orientation(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(np.array([[256, 512, 768]], dtype=np.uint16)).save(tmp_path / "a.png", exif=exif)
    found = open_picture(tmp_path / "a.png", exif_orientation=True)
    assert np.asarray(found).tolist() == [[1], [2], [3]]


def test_transparency_is_dropped_and_content_may_be_in_memory() -> None:
    content = BytesIO()
    Image.new("RGBA", (2, 1), (10, 20, 30, 0)).save(content, "PNG")
    content.seek(0)
    assert open_picture(content, "cell", mode="RGB").getpixel((0, 0)) == (10, 20, 30)
    with pytest.raises(
        CorruptData, match=r"^cell cannot be read as an image \(unknown format\); replace or remove it$"
    ):
        open_picture(BytesIO(b"no image"), "cell")


def test_a_size_is_in_the_header(tmp_path: Path) -> None:
    gradient(40, 30).save(tmp_path / "a.png")
    content = (tmp_path / "a.png").read_bytes()
    (tmp_path / "cut.png").write_bytes(content[:60])
    assert picture_size(tmp_path / "cut.png") == (40, 30)
    with pytest.raises(CorruptData, match=r"cut\.png cannot be read as an image"):
        open_picture(tmp_path / "cut.png")
    (tmp_path / "empty.png").touch()
    with pytest.raises(CorruptData, match=r"/empty\.png cannot be read as an image \(unknown format\)"):
        picture_size(tmp_path / "empty.png")


@pytest.mark.parametrize(("width", "height"), [(40, 20), (20, 40), (20, 20)])
def test_the_centre_of_the_short_side_is_cropped(width: int, height: int) -> None:
    """A crop of 10 of a short side of 20: nothing is resized."""
    pixels = np.asarray(resize_and_crop(gradient(width, height), 10, 0.5, NEAREST))
    left, top = (width - 10) // 2, (height - 10) // 2
    assert pixels[0, :, 0].tolist() == list(range(left, left + 10))
    assert pixels[:, 0, 1].tolist() == [2 * row for row in range(top, top + 10)]


def test_the_short_side_is_rounded_down() -> None:
    """224 / 0.875 is 256; 32 / 0.9 is 35.6."""
    assert resize_and_crop(gradient(100, 50), 32, 0.9, NEAREST).size == (32, 32)
    whole = np.asarray(resize_and_crop(gradient(70, 35), 32, 0.9, NEAREST))
    assert whole[0, :2, 0].tolist() == [19, 20], "35 is kept, and (70 - 32) / 2 cut off on the left"


def test_only_a_stated_fraction_changes_images_of_the_size() -> None:
    image = gradient(16, 16)
    assert fitted(image, 16, None, NEAREST) is image
    assert not np.array_equal(fitted(image, 16, 0.5, NEAREST), image)
    assert fitted(gradient(20, 16), 16, None, NEAREST).size == (16, 16)


def test_pixels_and_pictures_are_each_others_inverse() -> None:
    pixels = pixels_of(gradient(4, 3))
    assert (tuple(pixels.shape), pixels.dtype) == ((3, 3, 4), torch.uint8)
    assert pixels[0, 0].tolist() == [0, 1, 2, 3]
    assert torch.equal(pixels_of(as_picture(pixels / 255)), pixels)
    grey = pixels_of(gradient(4, 3).getchannel(1))
    assert tuple(grey.shape) == (1, 3, 4)
    assert torch.equal(pixels_of(as_picture(grey / 255)), grey)


@pytest.mark.parametrize("threads", [1, 4])
def test_a_task_runs_once_for_each_number(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    seen: list[int] = []
    in_threads(seen.append, 20)
    assert sorted(seen) == list(range(20))
    in_threads(seen.append, 0)
    assert len(seen) == 20

    def fails(number: int) -> None:
        if number == 3:
            raise CorruptData("the third")

    with pytest.raises(CorruptData, match="the third"):
        in_threads(fails, 5)
