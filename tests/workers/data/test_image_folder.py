from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from PIL import Image
from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD

from assay.workers.data import ade20k, camvid
from assay.workers.data import image_folder as module
from assay.workers.data.formats import stored_corruptions
from assay.workers.data.formats.dataset import CorruptData, DataSet, MissingData
from assay.workers.data.image_folder import MEAN, STD, image_folder

PARTS: tuple[Literal["train", "test"], ...] = ("train", "test")
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


@pytest.mark.costly
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


def test_a_name_that_is_not_utf_8_is_refused(root: Path) -> None:
    (root / "birds" / "val" / "crow" / os.fsdecode(b"a\xff.png")).touch()
    with pytest.raises(CorruptData, match=r"the name val/crow/a\\xff\.png is not UTF-8; rename it"):
        image_folder(root, "test", folder="birds")


def test_file_that_disappears_is_named(root: Path) -> None:
    data = image_folder(root, "test", folder="birds")
    (root / "birds" / "val" / "crow" / "0.png").unlink()
    with pytest.raises(CorruptData, match=r"0\.png"):
        data.images([0], 32)
    with pytest.raises(CorruptData, match=r"0\.png cannot be read"):
        data.content_sha256()


@pytest.mark.parametrize("suffix", ["png", "tiff", "pgm"])
@pytest.mark.parametrize("channels", [1, 3])
def test_the_upper_byte_of_sixteen_bits_is_taken_as_of_colours(
    tmp_path: Path, suffix: str, channels: Literal[1, 3]
) -> None:
    values = np.arange(64, dtype=np.uint16).reshape(8, 8) * 1000
    for name in "ab":
        (tmp_path / "set" / name).mkdir(parents=True)
        Image.fromarray(values).save(tmp_path / "set" / name / f"0.{suffix}")
    data = image_folder(tmp_path, "test", folder="set", splits="all", channels=channels)
    wanted = torch.from_numpy((values >> 8).astype(np.float32)) / 255
    assert torch.equal(data.images([0], 8)[0], wanted.expand(channels, 8, 8))


@pytest.mark.parametrize("mode", ["I", "F"])
def test_what_has_no_8_bit_colours_is_refused_by_name(tmp_path: Path, mode: str) -> None:
    for name in "ab":
        (tmp_path / "set" / name).mkdir(parents=True)
        Image.new(mode, (8, 8)).save(tmp_path / "set" / name / "0.tiff")
    with pytest.raises(CorruptData, match=r"a/0\.tiff has 32 bits"):
        image_folder(tmp_path, "test", folder="set", splits="all").images([0], 8)


def test_files_of_the_models_size_stay_as_they_are_unless_a_fraction_is_stated(tmp_path: Path) -> None:
    write(tmp_path / "set" / "a" / "0.png", (32, 32))
    write(tmp_path / "set" / "b" / "0.png", (40, 60))
    plain = image_folder(tmp_path, "test", folder="set", splits="all")
    stated = image_folder(tmp_path, "test", folder="set", splits="all", crop_fraction=0.875)
    whole = image_folder(tmp_path, "test", folder="set", splits="all", crop_fraction=1.0)
    stored = torch.from_numpy(np.array(Image.open(tmp_path / "set" / "a" / "0.png")))
    assert torch.equal(plain.images([0], 32)[0], stored.permute(2, 0, 1) / 255)
    assert torch.equal(plain.images([0], 32), whole.images([0], 32))
    assert not torch.equal(plain.images([0], 32), stated.images([0], 32))
    assert torch.equal(plain.images([1], 32), stated.images([1], 32))
    assert not torch.equal(plain.images([1], 32), whole.images([1], 32))


def test_one_channel_is_luminance(tmp_path: Path) -> None:
    for name, colour in (("a", (255, 0, 0)), ("b", (10, 20, 30))):
        (tmp_path / "set" / name).mkdir(parents=True)
        Image.new("RGB", (4, 4), colour).save(tmp_path / "set" / name / "0.png")
    data = image_folder(tmp_path, "test", folder="set", splits="all", channels=1)
    pixels = data.images([0, 1], 4)
    assert (data.channels, len(data.mean), len(data.std), pixels.shape) == (1, 1, 1, (2, 1, 4, 4))
    assert (pixels[:, 0, 0, 0] * 255).round().tolist() == [76, 18]  # 0.299 * 255; 2.99 + 11.74 + 3.42
    assert data.picture(0).mode == "L"
    weights = torch.tensor([0.299, 0.587, 0.114])
    assert data.mean[0] == pytest.approx(float(weights @ torch.tensor(MEAN)), abs=5e-4)
    assert data.std[0] == pytest.approx(float(weights @ torch.tensor(STD)), abs=5e-4)


def test_the_orientation_tag_is_applied_on_request(tmp_path: Path) -> None:
    picture = Image.new("L", (4, 4))
    picture.putpixel((0, 0), 255)
    for name in "ab":
        (tmp_path / "set" / name).mkdir(parents=True)
        exif = Image.Exif()
        exif[0x0112] = 3  # turned by 180 degrees
        picture.save(tmp_path / "set" / name / "0.png", exif=exif)
    stored = image_folder(tmp_path, "test", folder="set", splits="all").images([0], 4)
    turned = image_folder(tmp_path, "test", folder="set", splits="all", exif_orientation=True).images([0], 4)
    assert stored[0, 0, 0, 0] == turned[0, 0, 3, 3] == 1
    assert torch.equal(stored.rot90(2, (2, 3)), turned)


def test_what_systems_leave_behind_is_no_class_and_no_image(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        write(tmp_path / "set" / name / "0.png")
    for junk in ("__MACOSX/cat/0.png", "@eaDir/0.png", ".git/0.png", "cat/._0.png", "dog/Thumbs.db"):
        write(tmp_path / "set" / junk) if junk.endswith("png") else (tmp_path / "set" / junk).touch()
    for junk in ("cat/@eaDir/0.png", "cat/0.gif", "desktop.ini"):
        (tmp_path / "set" / junk).parent.mkdir(exist_ok=True)
        (tmp_path / "set" / junk).touch()
    data = image_folder(tmp_path, "test", folder="set", splits="all")
    assert (data.class_names, list(data.ids)) == (("cat", "dog"), ["cat/0.png", "dog/0.png"])
    assert data.ignored == {
        "count": 8,
        "first": [
            *(".git/", "@eaDir/", "__MACOSX/", "cat/._0.png", "cat/0.gif", "cat/@eaDir/"),
            *("desktop.ini", "dog/Thumbs.db"),
        ],
    }


def write_flat(root: Path, labels: str, count: int = 4) -> None:
    for number in range(count):
        write(root / "set" / f"{number}.png", (8, 8), seed=number)
    (root / "set" / "labels.csv").write_text(labels)


def test_a_file_of_labels_serves_a_flat_folder(tmp_path: Path) -> None:
    write_flat(tmp_path, "name,label\n2.png,10\n0.png,9\n1,10\n3.png,9\n")
    data = image_folder(tmp_path, "test", folder="set", labels="labels.csv", splits="all")
    assert (data.class_names, list(data.ids)) == (("9", "10"), ["0.png", "1.png", "2.png", "3.png"])
    assert data.labels.tolist() == [0, 1, 1, 0]
    train, test = (image_folder(tmp_path, part, folder="set", labels="labels.csv") for part in PARTS)
    assert sorted([*train.ids, *test.ids]) == list(data.ids)
    assert len(test) == 2
    with pytest.raises(MissingData, match=r'labels to the name|"labels": "labels\.csv"'):
        image_folder(tmp_path, "test", folder="set")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("name,label\n0.png,a\n9.png,b\n8,b\n", "names 2 of 3 images that are not beside it: 9.png, 8"),
        ("name,label\n0.png,a\n0,b\n", "names '0.png' twice"),
        ("name,label\n0.png,a\n1.png,\n", "'1.png' has no label"),
        ("name,label\n0.png,a\n1.png,a\n", "has 1 different labels"),
        ("name;label\n0.png;a\n", "is separated by ;"),
        ("id,class\n0.png,a\n", "has the columns 'id', 'class'; wanted are name"),
        ("name,label\n0.png,a,b\n", "line 2 has 3 cells"),
        ("name,label\n../x.png,a\n0.png,b\n", "not beside it: ../x.png"),
    ],
)
def test_a_wrong_file_of_labels_is_refused(tmp_path: Path, labels: str, message: str) -> None:
    write_flat(tmp_path, labels)
    with pytest.raises((CorruptData, MissingData), match=message):
        image_folder(tmp_path, "test", folder="set", labels="labels.csv")


def test_the_name_of_a_file_of_labels_is_no_path(tmp_path: Path) -> None:
    write_flat(tmp_path, "name,label\n0.png,a\n1.png,b\n")
    for wrong in ("../labels.csv", "/labels.csv", ".hidden.csv"):
        with pytest.raises(ValueError, match="is no name of a file"):
            image_folder(tmp_path, "test", folder="set", labels=wrong)
    with pytest.raises(CorruptData, match="is no CSV or TSV file"):
        image_folder(tmp_path, "test", folder="set", labels="labels.json")
    with pytest.raises(MissingData, match=r"Did you mean 'labels\.csv'"):
        image_folder(tmp_path, "test", folder="set", labels="label.csv")
    (tmp_path / "set" / "away.csv").symlink_to("/etc/hostname")
    with pytest.raises(ValueError, match="leads out of the data root"):
        image_folder(tmp_path, "test", folder="set", labels="away.csv")


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
