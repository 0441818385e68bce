from __future__ import annotations

import pytest
import torch

from assay.workers.training.determinism import deterministic


def settings() -> tuple[bool, bool, bool, bool]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.backends.cudnn.benchmark,
        torch.backends.cuda.matmul.allow_tf32,
        torch.backends.cudnn.allow_tf32,
    )


def test_strict_inside_and_as_before_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    before = settings()
    with deterministic():
        assert settings() == (True, False, False, False)
    assert settings() == before


def test_as_before_after_an_error() -> None:
    before = settings()
    with pytest.raises(RuntimeError, match="inside"), deterministic():
        raise RuntimeError("inside")
    assert settings() == before
