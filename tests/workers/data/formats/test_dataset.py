from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn import functional

from assay.workers.data.digits import digits
from assay.workers.data.formats.dataset import Subset, checked_indices, checked_size, resize


def test_resize_is_bilinear_with_half_pixel_centres() -> None:
    pixels = torch.tensor([[[[0.0, 1.0]] * 2]])  # (1, 1, 2, 2), columns 0 and 1
    assert resize(pixels, 4)[0, 0, 0].tolist() == [0.0, 0.25, 0.75, 1.0]


def test_upsampling_equals_plain_bilinear_and_downsampling_is_anti_aliased() -> None:
    pixels = torch.rand(3, 2, 8, 8, generator=torch.Generator().manual_seed(0))
    plain = functional.interpolate(pixels, size=(19, 19), mode="bilinear", align_corners=False)
    torch.testing.assert_close(resize(pixels, 19), plain, rtol=0, atol=1e-6)
    checkers = torch.tensor([0.0, 1.0]).repeat(8, 4)[None, None]  # (1, 1, 8, 8), alternating columns
    assert resize(checkers, 2).std() < 0.1  # without anti-aliasing it would pick single columns


def test_resize_stays_in_range_and_handles_no_image() -> None:
    assert resize(torch.ones(1, 1, 8, 8), 37).max() <= 1.0
    assert resize(torch.empty(0, 3, 8, 8), 5).shape == (0, 3, 5, 5)


def test_checks_name_the_value() -> None:
    with pytest.raises(IndexError, match="index 3 is outside"):
        checked_indices([0, 3], 3)
    with pytest.raises(IndexError, match="index -1"):
        checked_indices([-1], 3)
    with pytest.raises(ValueError, match="got 0"):
        checked_size(0)


def test_subset_of_a_subset_keeps_ids_labels_and_pixels() -> None:
    data = digits(None, "test")
    inner = data.subset([5, 3, 8]).subset([2, 0])
    assert isinstance(inner, Subset)
    assert list(inner.ids) == [data.ids[8], data.ids[5]]
    assert inner.labels.tolist() == [int(data.labels[8]), int(data.labels[5])]
    assert torch.equal(inner.images([0, 1], 12), data.images([8, 5], 12))


def test_subset_hash_depends_on_its_examples_and_their_order() -> None:
    data = digits(None, "test")
    hashes = {data.subset(chosen).content_sha256() for chosen in ([0, 1], [1, 0], [0], [0, 2])}
    assert len(hashes) == 4
    assert data.subset([0, 1]).content_sha256() in hashes


def test_subset_refuses_doubles_and_unknown_indices() -> None:
    data = digits(Path("unused"), "test")
    with pytest.raises(ValueError, match="at most once"):
        data.subset([1, 1])
    with pytest.raises(IndexError, match="outside"):
        data.subset([len(data)])
