"""Scaled Attention with a learned S, against the authors' module."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from assay.models.attention import scaled_learned as module
from assay.models.attention.scaled_learned import LearnedScaledAttention
from assay.models.attention.softmax import SoftmaxAttention
from assay.models.vit import vit


def test_output_equals_the_authors_module(vector: Callable[[str], Any]) -> None:
    stored = vector("scaled_S")
    attention = stored.load(LearnedScaledAttention(12, 3, patches=6))
    assert stored["w.s"].abs().min() > 0
    torch.testing.assert_close(attention(stored["x"]), stored["out64"], rtol=0, atol=1e-9)


def test_starts_as_softmax_attention() -> None:
    attention, softmax = LearnedScaledAttention(12, 3, patches=6).double(), SoftmaxAttention(12, 3).double()
    assert not attention.load_state_dict(softmax.state_dict(), strict=False).unexpected_keys
    x = torch.randn(2, 7, 12, dtype=torch.float64)
    torch.testing.assert_close(attention(x), softmax(x), rtol=0, atol=1e-13)


def test_padding_is_not_subtracted(vector: Callable[[str], Any]) -> None:
    stored = vector("scaled_S")
    attention = stored.load(LearnedScaledAttention(12, 3, patches=6))
    mask = (torch.arange(7) < 4).expand(2, -1)
    masked = attention(stored["x"], mask=mask)[:, :4]
    torch.testing.assert_close(masked, attention(stored["x"][:, :4]), rtol=0, atol=1e-12)


def test_gradient_reaches_s_from_the_start() -> None:
    attention = LearnedScaledAttention(12, 3, patches=4).double()
    x = torch.randn(1, 5, 12, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(attention(x).square().sum(), attention.s)
    assert gradient.abs().min() > 0


def test_size_in_vit_tiny_is_that_of_the_paper() -> None:
    with torch.device("meta"):
        model = vit(1000, 3, attention=LearnedScaledAttention)
    assert sum(parameter.numel() for parameter in model.parameters()) == 5_717_416 + 1_397_124


def test_prefix_tokens_have_rows_of_their_own() -> None:
    shapes = [LearnedScaledAttention(12, 3, patches=6, prefix_tokens=count).s.shape for count in (0, 1)]
    assert shapes == [(3, 6, 6), (3, 7, 7)]


def test_longer_sequences_are_refused() -> None:
    with pytest.raises(ValueError, match="S for 7 tokens: got a sequence of 8"):
        LearnedScaledAttention(12, 3, patches=6)(torch.zeros(1, 8, 12))
    with pytest.raises(ValueError, match="patches must be at least 1: got 0"):
        LearnedScaledAttention(12, 3, patches=0)


def test_rule_wants_the_patches_of_the_model() -> None:
    ((rule, _),) = module.RULES
    model = SimpleNamespace(image_size=32, patch_size=8)
    holds = [eval(rule, {"model": model, "params": SimpleNamespace(patches=count)}) for count in (16, 196)]
    assert holds == [True, False]
