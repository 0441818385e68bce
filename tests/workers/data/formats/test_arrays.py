"""Resized images are computed once."""

from __future__ import annotations

import pytest
import torch

from assay.workers.data.digits import digits
from assay.workers.data.formats import arrays


def test_resized_images_are_computed_once_and_equal_the_uncached(monkeypatch: pytest.MonkeyPatch) -> None:
    data = digits(None, "test")
    cached = data.images([3, 100], 32)
    reads: list[list[int]] = []
    monkeypatch.setattr(data, "_read", reads.append)
    assert torch.equal(data.images([100], 32), cached[1:])
    assert reads == []
    monkeypatch.setattr(arrays, "CACHE_BYTES", 0)
    assert torch.equal(digits(None, "test").images([3, 100], 32), cached)
