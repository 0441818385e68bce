"""The spectrum of attention matrices against matrices of known singular values, and against NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from assay.models.layers.layers import Classifier
from assay.models.vit import vit
from assay.workers.evaluation.attention_spectrum import attention_spectrum, spectrum
from assay.workers.evaluation.engine.analysis import Measured
from tests.support.shards import Given, shard

SMALL: dict[str, Any] = {"image_size": 16, "patch_size": 4, "depth": 3, "width": 24, "heads": 2}
IMAGES = torch.rand(6, 1, 16, 16, generator=torch.Generator().manual_seed(0))


def with_singular_values(*values: list[float]) -> Tensor:
    """One matrix per list, as heads of one example: (1, H, N, N)."""
    torch.manual_seed(1)
    found = []
    for one in values:
        left, right = (torch.linalg.qr(torch.randn(len(one), len(one)).double())[0] for _ in range(2))
        found.append(left @ torch.diag(torch.tensor(one).double()) @ right)
    return torch.stack(found)[None]


def test_shares_of_known_singular_values() -> None:
    matrix = with_singular_values([4.0, 3.0, 0.0, 0.0])
    squares, values = spectrum(matrix, of="squares"), spectrum(matrix, of="values")
    assert squares["largest"].item() == pytest.approx(16 / 25, rel=1e-12)
    assert values["largest"].item() == pytest.approx(4 / 7, rel=1e-12)
    # N = 4: the points 1 to 8 of 32 have one value, 9 to 16 two.
    assert squares["curve"][0, [0, 1, 8, 9, 16, 32]].tolist() == pytest.approx([0, 0.64, 0.64, 1, 1, 1])
    assert squares["rank_90"].item() == 2
    entropy = -sum(p * math.log(p) for p in (4 / 7, 3 / 7))
    for found in (squares, values):
        assert found["effective_rank"].item() == pytest.approx(math.exp(entropy), rel=1e-9)
        assert found["tokens"].item() == 4


@pytest.mark.parametrize("of", ["squares", "values"])
def test_shares_equal_cumulative_sums_without_a_kernel_that_is_not_deterministic(
    of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch.cumsum has no deterministic CUDA kernel for floating point."""
    matrix = torch.rand(2, 3, 37, 37, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    singular = torch.linalg.svdvals(matrix)
    summed = singular.square() if of == "squares" else singular
    wanted = summed.cumsum(dim=-1) / summed.sum(dim=-1, keepdim=True)
    ends = [-(-point * 37 // 32) for point in range(1, 33)]

    def refused(*_: object, **__: object) -> None:
        raise RuntimeError("cumsum_cuda_kernel does not have a deterministic implementation")

    monkeypatch.setattr(Tensor, "cumsum", refused)
    monkeypatch.setattr(torch, "cumsum", refused)
    found = spectrum(matrix, of=of)
    shares = wanted.mean(dim=1)[:, [end - 1 for end in ends]]
    torch.testing.assert_close(found["curve"][:, 1:], shares, rtol=1e-13, atol=0)
    assert torch.equal(found["rank_90"], ((wanted < 0.9).sum(dim=-1) + 1).double().mean(dim=1))


def test_means_over_heads() -> None:
    matrix = with_singular_values([1.0, 0.0, 0.0], [1.0, 1.0, 1.0])
    found = spectrum(matrix, of="squares")
    assert found["largest"].item() == pytest.approx((1 + 1 / 3) / 2)
    assert found["rank_90"].item() == pytest.approx((1 + 3) / 2)
    assert found["effective_rank"].item() == pytest.approx((1 + 3) / 2)


def test_ninety_percent_that_are_reached_exactly_are_reached() -> None:
    assert spectrum(torch.diag(torch.tensor([3.0, 1.0])).double()[None, None], of="squares")["rank_90"] == 1


def test_what_is_not_finite_or_zero_has_no_value() -> None:
    matrix = with_singular_values([2.0, 1.0]).repeat(3, 1, 1, 1)
    matrix[1, 0, 0, 0] = torch.inf
    matrix[2] = 0.0
    found = spectrum(matrix, of="squares")
    for name in ("largest", "rank_90", "effective_rank"):
        assert torch.isfinite(found[name]).tolist() == [True, False, False], name
    assert torch.isnan(found["curve"][1:, 1:]).all()


def measured(attention: str, **parameters: Any) -> tuple[Measured, nn.Module]:
    torch.manual_seed(0)
    model = Classifier(vit(4, 1, **SMALL, attention=attention, layers="last"), [0.5], [0.5]).eval()
    data = Given([*"abcdef"], images=lambda rows: IMAGES[list(rows)])
    size = parameters.pop("batch_size", 4)
    found = attention_spectrum(**parameters).measure(shard(model, data, batch_size=size))
    assert isinstance(found, Measured)
    return found, model


@pytest.mark.parametrize("attention", ["softmax", "rpc", "primal"])
def test_equals_numpy_on_the_matrices_of_the_layers(attention: str) -> None:
    found, model = measured(attention, layers=[0, 2], of="values")
    assert found.facts == {"layers": [0, 2]}
    block = model.backbone.blocks[2]  # type: ignore[union-attr,index]
    entered: list[Tensor] = []
    handle = block.attn.register_forward_pre_hook(lambda _, args: entered.append(args[0].detach()))
    with torch.no_grad():
        model(IMAGES)
    handle.remove()
    with torch.no_grad():
        if attention == "primal":
            left, right = block.attn.kernel_factors(entered[0])
            matrices = (left.double() @ right.double().transpose(-2, -1)).numpy()
        else:
            q, k, _ = (part.double().numpy() for part in block.attn.queries_keys_values(entered[0]))
            scores = q @ k.transpose(0, 1, 3, 2) / math.sqrt(12)
            matrices = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    singular = np.linalg.svd(matrices, compute_uv=False)
    explained = singular.cumsum(-1) / singular.sum(-1, keepdims=True)
    np.testing.assert_allclose(found.values["largest"][:, 1], explained[..., 0].mean(1), rtol=1e-5)
    ranks = (explained < 0.9).sum(-1).mean(1) + 1
    np.testing.assert_allclose(found.values["rank_90"][:, 1], ranks, rtol=1e-12)
    if attention == "primal":  # a rank of at most D = 12 of 17 tokens
        assert found.values["curve"].unflatten(1, (2, 33))[:, 1, 24].min() > 1 - 1e-6


def test_another_batch_changes_rounding_only() -> None:
    few, many = (measured("primal", batch_size=size)[0].values for size in (2, 6))
    for name, values in few.items():
        assert values.shape == (6, 3 * 33 if name == "curve" else 3)
        torch.testing.assert_close(values, many[name], rtol=1e-5, atol=1e-6)
