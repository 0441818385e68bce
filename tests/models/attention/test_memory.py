"""The fused mechanisms hold no N x N matrix, neither as a temporary nor for the backward pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from assay.models.attention.attention_bn import AttentionBN
from assay.models.attention.attention_bn_sh import AttentionBNSH
from assay.models.attention.attention_sh import AttentionSH
from assay.models.attention.conv1d_attention import Conv1DAttention
from assay.models.attention.linear import LinearAttention
from assay.models.attention.linear_bn import LinearAttentionBN
from assay.models.attention.linear_bn_sh import LinearAttentionBNSH
from assay.models.attention.linear_sh import LinearAttentionSH
from assay.models.attention.primal import PrimalAttention
from assay.models.attention.rpc import RPCAttention
from assay.models.attention.rpc_asymmetric import AsymmetricRPCAttention
from assay.models.attention.rpc_causal import CausalRPCAttention
from assay.models.attention.scaled_alpha import AlphaScaledAttention
from assay.models.attention.scaled_exact import ExactScaledAttention
from assay.models.attention.softmax import SoftmaxAttention
from assay.models.attention.softmax_standardized import StandardizedSoftmaxAttention
from assay.models.attention.symmetric import SymmetricAttention

BATCH, TOKENS, WIDTH, HEADS = 2, 512, 16, 2
MATRIX = BATCH * HEADS * TOKENS * TOKENS
FUSED = (
    AttentionBN,
    AttentionBNSH,
    AttentionSH,
    Conv1DAttention,
    LinearAttention,
    LinearAttentionBN,
    LinearAttentionBNSH,
    LinearAttentionSH,
    RPCAttention,
    AsymmetricRPCAttention,
    CausalRPCAttention,
    AlphaScaledAttention,
    SoftmaxAttention,
    StandardizedSoftmaxAttention,
    SymmetricAttention,
)


class LargestTensor(TorchDispatchMode):
    """Notes the most elements that any tensor made below it has."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for made in result if isinstance(result, tuple | list) else (result,):
            if isinstance(made, Tensor):
                self.elements = max(self.elements, made.numel())
        return result


def largest_made(attention: nn.Module, tokens: int = TOKENS, **options: Any) -> int:
    with torch.no_grad(), LargestTensor() as seen:
        attention(torch.randn(BATCH, tokens, WIDTH), **options)
    return seen.elements


def largest_saved(attention: nn.Module, tokens: int = TOKENS) -> int:
    sizes = [0]

    def pack(tensor: Tensor) -> Tensor:
        sizes.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        attention(torch.randn(BATCH, tokens, WIDTH, requires_grad=True))
    return max(sizes)


@pytest.mark.parametrize("mechanism", FUSED)
def test_inference_makes_no_matrix_of_tokens(mechanism: Callable[..., nn.Module]) -> None:
    attention = mechanism(WIDTH, HEADS).eval()
    assert largest_made(attention) <= 3 * BATCH * TOKENS * WIDTH
    assert largest_saved(attention) <= 3 * BATCH * TOKENS * WIDTH


@pytest.mark.parametrize("causal", [False, True])
def test_primal_attention_grows_with_the_tokens_alone(causal: bool) -> None:
    """At TOKENS and four times as many: the largest tensor, in inference and for the backward pass."""
    attention = PrimalAttention(WIDTH, HEADS, rank=4, tokens=4 * TOKENS, causal=causal)
    for measure in (largest_made, largest_saved):
        few, many = (measure(attention, tokens=count) for count in (TOKENS, 4 * TOKENS))
        assert many <= 4 * few
        assert many <= 8 * BATCH * TOKENS * WIDTH
    mask = torch.ones(BATCH, TOKENS, dtype=torch.bool)
    assert largest_made(attention, mask=mask) <= 2 * BATCH * TOKENS * WIDTH


def test_neither_does_a_padding_mask() -> None:
    mask = torch.ones(BATCH, TOKENS, dtype=torch.bool)
    assert largest_made(RPCAttention(WIDTH, HEADS).eval(), mask=mask) < MATRIX / HEADS


def test_a_matrix_of_tokens_would_be_noticed() -> None:
    assert largest_made(ExactScaledAttention(WIDTH, HEADS).eval()) == MATRIX
    assert largest_saved(ExactScaledAttention(WIDTH, HEADS).eval()) == MATRIX
