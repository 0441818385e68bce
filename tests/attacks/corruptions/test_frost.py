"""Source of frost's photographs, and the error without them."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import cv2
import pytest
import torch
from PIL import Image

from assay.attacks.corruptions.frost import frost
from assay.attacks.corruptions.imaging.textures import (
    FOLDER,
    TEXTURES,
    folder,
    frost_texture,
    photographs_sha256,
)

# Of the five and of the six photographs of imagecorruptions-imaug 1.1.5; docs/corruptions.md states both.
SHA256 = "dba9eb3246ebb36babe196da042d103d32427affc397d3dd0d558c1441473472"
SHA256_OF_SIX = "a8cedd85d38cead3ccdcdb1f650fc799add967a51a29b3ae0ca3c3858a96f611"


@pytest.mark.parametrize("number", range(len(TEXTURES)))
def test_a_photograph_is_enlarged_as_by_opencv(number: int) -> None:
    pixels = cv2.imread(str(folder() / TEXTURES[number]))
    scale = max(1.0, 700 / pixels.shape[0], 300 / pixels.shape[1]) * 1.1
    size = (-int(-pixels.shape[1] * scale // 1), -int(-pixels.shape[0] * scale // 1))
    expected = torch.tensor(cv2.resize(pixels, size, interpolation=cv2.INTER_CUBIC)[..., ::-1].copy())
    found = frost_texture(number, 700, 300, "imagecorruptions")
    assert found.shape[-2] > 700
    assert found.shape[-1] > 300
    difference = (found.permute(1, 2, 0).int() - expected.int()).abs()
    assert int(difference.max()) <= 1
    assert float((difference > 0).double().mean()) < 0.01


def test_without_photographs_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ASSAY_DATA_ROOT", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    image = torch.rand(1, 3, 40, 40)
    with pytest.raises(
        ValueError, match=r"frost-photographs below ASSAY_DATA_ROOT, or pip install 'assay-rob"
    ):
        frost(severity=1)(image, ("a",), 0)
    monkeypatch.setenv("ASSAY_DATA_ROOT", str(tmp_path))
    (tmp_path / FOLDER).mkdir()
    with pytest.raises(ValueError, match=r"lacks frost1\.png, frost2\.png"):
        frost(severity=1)(image, ("a",), 0)


def test_photographs_of_a_folder_give_the_same_bytes_and_hash(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("ASSAY_DATA_ROOT", raising=False)
    ids, images = [str(number) for number in range(12)], torch.rand(12, 3, 40, 40)
    expected, packaged = frost(severity=3)(images, ids, 0), folder()
    assert photographs_sha256() == SHA256
    monkeypatch.setenv("ASSAY_DATA_ROOT", str(tmp_path))
    shutil.copytree(packaged, tmp_path / FOLDER)
    assert folder() == tmp_path / FOLDER
    assert photographs_sha256() == SHA256
    assert photographs_sha256("imagecorruptions") == SHA256_OF_SIX
    assert torch.equal(frost(severity=3)(images, ids, 0), expected)
    Image.new("RGB", (60, 60)).save(tmp_path / FOLDER / TEXTURES[5])
    assert photographs_sha256() == SHA256
    assert photographs_sha256("imagecorruptions") != SHA256_OF_SIX
    Image.new("RGB", (60, 60)).save(tmp_path / FOLDER / TEXTURES[0])
    assert photographs_sha256() != SHA256
    assert not torch.equal(frost(severity=3)(images, ids, 0), expected)


def test_all_photographs_and_places_come_up() -> None:
    ids = [str(number) for number in range(200)]
    [places] = frost(severity=1, constants="imagecorruptions").draws(ids, (3, 64, 64), 0)
    assert set(places[:, 0].tolist()) == set(range(len(TEXTURES)))
    assert len(set(places[:, 1].tolist())) > 100
    assert int(places.min()) >= 0
