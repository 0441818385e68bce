"""Files of images and maps: pixels, sizes, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from assay.workers.data.camvid import camvid
from assay.workers.data.formats.dataset import CorruptData, MissingData
from assay.workers.data.formats.images.segmentation_files import SegmentationFiles
from assay.workers.data.formats.segmentation import IGNORE
from tests.support.camvid import SIZES, write
from tests.support.segmentation_files import change_pixel


@pytest.fixture
def data(tmp_path: Path) -> SegmentationFiles:
    write(tmp_path)
    return camvid(tmp_path, "test")


def test_maps_have_the_pixels_of_their_images(data: SegmentationFiles, tmp_path: Path) -> None:
    for number, (width, height) in enumerate(SIZES):
        with Image.open(tmp_path / "camvid" / "test" / f"test{number}.png") as image:
            pixels = np.array(image)
        with Image.open(tmp_path / "camvid" / "testannot" / f"test{number}.png") as annotation:
            values = torch.from_numpy(np.array(annotation))
        side = min(width, height)
        top, left = (height - side) // 2, (width - side) // 2
        square = np.s_[top : top + side, left : left + side]
        expected = torch.from_numpy(pixels[square]).permute(2, 0, 1) / 255
        assert torch.equal(data.images([number], side)[0], expected)
        values[values == 11] = IGNORE
        assert torch.equal(data.label_maps([number], side)[0], values[square])


def test_an_example_is_the_whole_file(data: SegmentationFiles, tmp_path: Path) -> None:
    for number, (width, height) in enumerate(SIZES):
        pixels, labels = data.example(number)
        with Image.open(tmp_path / "camvid" / "test" / f"test{number}.png") as image:
            assert np.array_equal(pixels.permute(1, 2, 0), np.array(image))
        with Image.open(tmp_path / "camvid" / "testannot" / f"test{number}.png") as annotation:
            values = torch.from_numpy(np.array(annotation))
        values[values == 11] = IGNORE
        assert torch.equal(labels, values)
        assert labels.shape == (height, width)


def test_maps_are_resized_to_the_nearest_pixel(data: SegmentationFiles) -> None:
    small, large = data.label_maps([3], 20)[0], data.label_maps([3], 80)[0]
    assert small[0].tolist() == [0] * 5 + [3] * 5 + [IGNORE] * 5 + [10] * 5
    assert torch.equal(large[::4, ::4], small)


def test_missing_files_are_named(tmp_path: Path) -> None:
    write(tmp_path)
    folder = tmp_path / "camvid"
    for number in range(3):
        (folder / "testannot" / f"test{number}.png").unlink()
    (folder / "test" / "test3.png").unlink()
    with pytest.raises(MissingData) as caught:
        camvid(tmp_path, "test")
    for name in ("testannot/test0.png", "testannot/test2.png", "test/test3"):
        assert name in str(caught.value)
    for path in (folder / "testannot").iterdir():
        path.unlink()
    (folder / "testannot").rmdir()
    with pytest.raises(MissingData, match=r"missing: testannot/\."):
        camvid(tmp_path, "test")
    with pytest.raises(MissingData, match="Did you mean 'camvid'"):
        camvid(tmp_path, "test", folder="canvid")


def test_a_folder_without_images(tmp_path: Path) -> None:
    for part in ("test", "testannot"):
        (tmp_path / "camvid" / part).mkdir(parents=True)
    with pytest.raises(MissingData, match=r"it holds none with \.bmp"):
        camvid(tmp_path, "test")


def test_two_images_of_one_name_are_refused(tmp_path: Path) -> None:
    write(tmp_path)
    folder = tmp_path / "camvid" / "test"
    (folder / "test0.jpg").write_bytes((folder / "test0.png").read_bytes())
    with pytest.raises(CorruptData, match=r"both test0\.jpg and test0\.png"):
        camvid(tmp_path, "test")


def test_values_that_stand_for_nothing_are_named(data: SegmentationFiles) -> None:
    change_pixel(data.folder / "testannot" / "test1.png", 12)
    with pytest.raises(CorruptData, match=r"test1\.png has the value 12.*allowed: 0 to 11"):
        data.label_maps([0, 1], 32)


def test_annotations_of_another_form_are_refused(data: SegmentationFiles) -> None:
    annotation = data.folder / "testannot" / "test0.png"
    Image.new("RGB", (48, 32)).save(annotation)
    with pytest.raises(CorruptData, match="mode RGB"):
        data.label_maps([0], 32)
    Image.new("L", (24, 16)).save(annotation)
    with pytest.raises(CorruptData, match=r"\(24, 16\) pixels, its image test/test0\.png has \(48, 32\)"):
        data.label_maps([0], 32)
    annotation.write_bytes(b"no image")
    with pytest.raises(CorruptData, match=r"test0\.png cannot be read"):
        data.label_maps([0], 32)


def test_an_image_that_cannot_be_read_is_named(data: SegmentationFiles) -> None:
    (data.folder / "test" / "test0.png").write_bytes(b"no image")
    for read in (data.images, data.label_maps):
        with pytest.raises(CorruptData, match=r"test/test0\.png cannot be read as an image"):
            read([0], 32)


def test_palettes_are_read_as_indices(data: SegmentationFiles) -> None:
    expected = data.label_maps([0], 32)
    annotation = data.folder / "testannot" / "test0.png"
    with Image.open(annotation) as grey:
        coloured = Image.fromarray(np.array(grey), mode="P")
    coloured.putpalette([value for entry in range(256) for value in (255 - entry, 7, 9)])
    coloured.save(annotation)
    assert torch.equal(data.label_maps([0], 32), expected)


def test_links_out_of_the_root_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "root")
    link = tmp_path / "root" / "camvid" / "test" / "test0.png"
    link.rename(tmp_path / "elsewhere.png")
    link.symlink_to(tmp_path / "elsewhere.png")
    with pytest.raises(ValueError, match="leads out of the data root"):
        camvid(tmp_path / "root", "test")
