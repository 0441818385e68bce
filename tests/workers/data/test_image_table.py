"""Labelled images in tables: encoded bytes, and structs as `datasets` writes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from PIL import Image

from assay.workers.data.formats.dataset import CorruptData
from assay.workers.data.image_table import ImageTable, image_table
from tests.support.tables import encoded, write_table


def pictures(count: int, size: tuple[int, int] = (6, 6)) -> list[np.ndarray]:
    draws = np.random.default_rng(0)
    return [draws.integers(0, 256, (*size, 3), dtype=np.uint8) for _ in range(count)]


def law_case(root: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> Callable[[str], ImageTable]:
    """For tests/laws: five images in each part, with one pixel or one label changed."""
    del monkeypatch
    for number, part in enumerate(("train", "test")):
        images = pictures(5)
        images[0][0, 0, 0] = 7 * number + (100 if change == "pixel" else 0)
        labels = [int(change == "label"), 1, 0, 1, 2]
        rows = [{"image": encoded(one), "label": label} for one, label in zip(images, labels, strict=True)]
        write_table(root / "d" / f"{part}.parquet", rows)
    return lambda split: image_table(root, "train" if split == "train" else "test", folder="d")


def test_pixels_are_those_of_the_files_and_groups_of_rows_do_not_matter(tmp_path: Path) -> None:
    images = pictures(7)
    rows = [
        {"image": {"bytes": encoded(one), "path": "x.png"}, "label": n % 3} for n, one in enumerate(images)
    ]
    write_table(tmp_path / "d" / "test-00000-of-00002.parquet", rows[:5])
    write_table(tmp_path / "d" / "test-00001-of-00002.parquet", rows[5:])
    data = image_table(tmp_path, "test", folder="d")
    assert (data.size, data.labels.tolist()) == ((6, 6), [0, 1, 2, 0, 1, 2, 0])
    wanted = torch.from_numpy(np.stack([images[n] for n in (6, 0, 3)])).permute(0, 3, 1, 2) / 255
    assert torch.equal(data.images([6, 0, 3], 6), wanted)
    assert data.images([0], 9).shape == (1, 3, 9, 9)


def test_images_that_datasets_has_saved(tmp_path: Path) -> None:
    images = [Image.fromarray(one) for one in pictures(3)]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"])})
    one = datasets.Dataset.from_dict({"image": images, "label": [0, 1, 1]}, features=features)
    datasets.DatasetDict({"test": one}).save_to_disk(tmp_path / "d")
    data = image_table(tmp_path, "test", folder="d")
    assert (data.class_names, data.labels.tolist()) == (("a", "b"), [0, 1, 1])
    assert np.array_equal(np.array(data.picture(2)), pictures(3)[2])


def test_images_of_several_sizes_are_cropped_or_squashed(tmp_path: Path) -> None:
    rows = [{"image": encoded(pictures(1, size)[0]), "label": n} for n, size in enumerate([(8, 16), (9, 9)])]
    write_table(tmp_path / "d" / "test.parquet", rows)
    cropped = image_table(tmp_path, "test", folder="d", crop_fraction=1.0)
    squashed = image_table(tmp_path, "test", folder="d", fit="squash", interpolation="bilinear")
    assert cropped.size is None
    middle = torch.from_numpy(np.array(cropped.picture(0))[:, 4:12]).permute(2, 0, 1) / 255
    assert torch.equal(cropped.images([0], 8)[0], middle)
    whole = squashed.picture(0).resize((8, 8), Image.Resampling.BILINEAR)
    assert torch.equal(squashed.images([0], 8)[0], torch.from_numpy(np.array(whole)).permute(2, 0, 1) / 255)


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    write_table(tmp_path / "d" / "test.parquet", [{"image": b"no image", "label": n} for n in range(2)])
    data = image_table(tmp_path, "test", folder="d")
    with pytest.raises(
        CorruptData,
        match=r"test\.parquet row 0 \(the first is 0\), column 'image' cannot be read as an image",
    ):
        data.images([0], 4)
    write_table(tmp_path / "e" / "test.parquet", [{"image": "a/b.png", "label": n} for n in range(2)])
    with pytest.raises(CorruptData, match="column 'image' is string, encoded images are wanted"):
        image_table(tmp_path, "test", folder="e")
    rows = [{"image": {"bytes": None, "path": "/etc/passwd"}, "label": n} for n in range(2)]
    rows[1]["image"] = {"bytes": b"x", "path": "y"}
    write_table(tmp_path / "f" / "test.parquet", rows)
    with pytest.raises(CorruptData, match="has no encoded image: paths of files are not followed"):
        image_table(tmp_path, "test", folder="f").picture(0)
