from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD

from assay.workers.data import ade20k, camvid
from assay.workers.data import image_folder as module
from assay.workers.data.formats import stored_corruptions
from assay.workers.data.formats.dataset import CorruptData, DataSet, MissingData
from assay.workers.data.image_folder import image_folder

SIZES = [(40, 60), (61, 40), (40, 40), (57, 91), (23, 20), (300, 45)]  # (W, H)


def write(path: Path, size: tuple[int, int] = (40, 60), mode: str = "RGB", seed: int = 0) -> None:
    """A smooth random image, so that interpolation has something to do."""
    path.parent.mkdir(parents=True, exist_ok=True)
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC).convert(mode).save(path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for seed, size in enumerate(SIZES):
        write(tmp_path / "birds" / "val" / ("crow", "wren")[seed % 2] / f"{seed}.png", size, seed=seed)
    return tmp_path


def law_case(root: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> Callable[[str], DataSet]:
    """For tests/laws: two classes, train and val, with one pixel or one label of each split changed."""
    del monkeypatch
    for split in ("train", "val"):
        for seed, size in enumerate(SIZES):
            write(root / "birds" / split / ("crow", "wren")[seed % 2] / f"{seed}.png", size, seed=seed)
        first = root / "birds" / split / "crow" / "0.png"
        if change == "pixel":
            with Image.open(first) as image:
                image.putpixel((0, 0), (1, 2, 3))
                image.save(first)
        if change == "label":
            first.rename(root / "birds" / split / "wren" / "0.png")
    return lambda split: image_folder(root, split, folder="birds")


@pytest.mark.parametrize("resize", ["bicubic", "bilinear"])
@pytest.mark.parametrize("crop_fraction", [0.33, 0.875, 0.9, 0.95, 1.0])
def test_preparation_equals_timms(root: Path, resize: str, crop_fraction: float) -> None:
    """Bit for bit; 224 / 0.9, 224 / 0.95 and most others are no whole numbers."""
    from timm.data import (
        create_transform,
    )  # here, so that tests/laws can import this file without torchvision

    data = image_folder(root, "test", folder="birds", resize=resize, crop_fraction=crop_fraction)  # type: ignore[arg-type]
    for size in (17, 24, 32, 224):
        reference = create_transform(
            size, interpolation=resize, crop_pct=crop_fraction, mean=(0.0,) * 3, std=(1.0,) * 3
        )
        images = data.images(range(len(data)), size)
        for image, identifier in zip(images, data.ids, strict=True):
            with Image.open(root / "birds" / identifier) as original:
                assert torch.equal(image, reference(original.convert("RGB"))), (size, identifier)


def test_preparation_equals_timms_for_fifty_sizes(tmp_path: Path) -> None:
    """Odd sides and even ones, at timm's usual crops: none may differ."""
    from timm.data import create_transform

    sides = np.random.default_rng(5).integers(61, 200, (50, 2)).tolist()
    for number, (width, height) in enumerate(sides):
        write(tmp_path / "set" / ("a", "b")[number % 2] / f"{number}.bmp", (width, height), seed=number)
    black = {"mean": (0.0,) * 3, "std": (1.0,) * 3}
    for crop_fraction in (0.875, 0.9, 0.95, 1.0):
        data = image_folder(tmp_path, "test", folder="set", splits="all", crop_fraction=crop_fraction)
        reference = create_transform(60, interpolation="bicubic", crop_pct=crop_fraction, **black)
        images = data.images(range(50), 60)
        different = [
            identifier
            for image, identifier in zip(images, data.ids, strict=True)
            if not torch.equal(image, reference(Image.open(tmp_path / "set" / identifier).convert("RGB")))
        ]
        assert not different, crop_fraction


def test_description(root: Path) -> None:
    data = image_folder(root, "test", folder="birds")
    assert (data.name, data.classes, data.channels, data.size) == ("image_folder", 2, 3, None)
    assert data.class_names == ("crow", "wren")
    assert data.labels.tolist() == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("mode", ["L", "1", "P", "RGBA", "LA", "CMYK"])
def test_other_modes_become_rgb(tmp_path: Path, mode: str) -> None:
    suffix = "tiff" if mode == "CMYK" else "png"
    write(tmp_path / "set" / "a" / f"0.{suffix}", mode=mode)
    write(tmp_path / "set" / "b" / "0.png")
    image = image_folder(tmp_path, "test", folder="set", splits="all").images([0], 32)[0]
    assert image.shape == (3, 32, 32)
    if mode in ("L", "1", "LA"):
        assert torch.equal(image[0], image[2])


def test_orientation_tag_is_not_applied(tmp_path: Path) -> None:
    write(tmp_path / "set" / "a" / "0.png")
    with Image.open(tmp_path / "set" / "a" / "0.png") as image:
        (tmp_path / "set" / "b").mkdir()
        exif = Image.Exif()
        exif[0x0112] = 6  # rotated by 90 degrees
        image.save(tmp_path / "set" / "b" / "0.png", exif=exif)
    plain, tagged = image_folder(tmp_path, "test", folder="set", splits="all").images([0, 1], 32)
    assert torch.equal(plain, tagged)


def test_broken_files_are_named(root: Path) -> None:
    crow = root / "birds" / "val" / "crow"
    content = (crow / "0.png").read_bytes()
    data = image_folder(root, "test", folder="birds")
    for broken in (b"", b"not an image", content[: len(content) // 2]):
        (crow / "0.png").write_bytes(broken)
        with pytest.raises(CorruptData, match=r"val/crow/0\.png cannot be read as an image"):
            data.images([1, 0, 2], 32)
    assert data.images([1, 2], 32).shape == (2, 3, 32, 32)


def test_file_that_disappears_is_named(root: Path) -> None:
    data = image_folder(root, "test", folder="birds")
    (root / "birds" / "val" / "crow" / "0.png").unlink()
    with pytest.raises(CorruptData, match=r"0\.png"):
        data.images([0], 32)
    with pytest.raises(CorruptData, match=r"0\.png cannot be read"):
        data.content_sha256()


def test_sixteen_bit_images_are_refused_not_clipped(tmp_path: Path) -> None:
    write(tmp_path / "set" / "b" / "0.png")
    (tmp_path / "set" / "a").mkdir()
    Image.fromarray(np.full((8, 8), 40_000, dtype=np.uint16)).save(tmp_path / "set" / "a" / "0.png")
    with pytest.raises(CorruptData, match="8 bits"):
        image_folder(tmp_path, "test", folder="set", splits="all").images([0], 8)


def test_number_of_threads_changes_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = image_folder(root, "test", folder="birds")
    one = data.images([5, 0, 3, 1], 32)
    monkeypatch.setattr(module.torch, "get_num_threads", lambda: 4)
    assert torch.equal(one, data.images([5, 0, 3, 1], 32))


def test_same_folder_elsewhere_has_the_same_hash(
    root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("other")
    (root / "birds").rename(other / "renamed")
    there = image_folder(other, "test", folder="renamed").content_sha256()
    (other / "renamed").rename(root / "birds")
    assert image_folder(root, "test", folder="birds").content_sha256() == there


def test_missing_folder_is_explained(root: Path) -> None:
    with pytest.raises(MissingData, match="Did you mean 'birds'"):
        image_folder(root, "test", folder="bird")
    with pytest.raises(MissingData, match="ASSAY_DATA_ROOT"):
        image_folder(None, "test", folder="birds")


def test_images_are_normalised_as_every_imagenet_model_expects(root: Path) -> None:
    data = image_folder(root, "test", folder="birds")
    assert (data.mean, data.std) == (IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD)
    assert (ade20k.MEAN, ade20k.STD) == (camvid.MEAN, camvid.STD) == (data.mean, data.std)
    corrupted = stored_corruptions.StoredCorruptions
    assert (corrupted.mean, corrupted.std) == (data.mean, data.std)
