"""Source of frost's photographs, and the error without them."""

from __future__ import annotations

import importlib.util

import cv2
import pytest
import torch

from assay.attacks.corruptions.frost import frost
from assay.attacks.corruptions.imaging.textures import TEXTURES, folder, frost_texture


@pytest.mark.parametrize("number", range(len(TEXTURES)))
def test_a_photograph_is_enlarged_as_by_opencv(number: int) -> None:
    pixels = cv2.imread(str(folder() / TEXTURES[number]))
    scale = max(1.0, 700 / pixels.shape[0], 300 / pixels.shape[1]) * 1.1
    size = (-int(-pixels.shape[1] * scale // 1), -int(-pixels.shape[0] * scale // 1))
    expected = torch.tensor(cv2.resize(pixels, size, interpolation=cv2.INTER_CUBIC)[..., ::-1].copy())
    found = frost_texture(number, 700, 300)
    assert found.shape[-2] > 700
    assert found.shape[-1] > 300
    difference = (found.permute(1, 2, 0).int() - expected.int()).abs()
    assert int(difference.max()) <= 1
    assert float((difference > 0).double().mean()) < 0.01


def test_without_the_package_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    frost_texture.cache_clear()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pip install imagecorruptions-imaug"):
        frost(severity=1)(torch.rand(1, 3, 40, 40), ("a",), 0)


def test_all_photographs_and_places_come_up() -> None:
    ids = [str(number) for number in range(200)]
    [places] = frost(severity=1).draws(ids, (3, 64, 64), 0)
    assert set(places[:, 0].tolist()) == set(range(len(TEXTURES)))
    assert len(set(places[:, 1].tolist())) > 100
    assert int(places.min()) >= 0
