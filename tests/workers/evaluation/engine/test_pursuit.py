"""Measures of the pursuit's parts against NumPy and scikit-learn, and the arms."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from assay.models.attention.rpc import RPCAttention
from assay.models.layers.attention.probe import PursuitTrace
from assay.models.layers.layers import Classifier
from assay.models.vit import vit
from assay.workers.evaluation.engine.pursuit import (
    arms_of,
    as_arm,
    auroc,
    decomposition,
    token_sizes,
    watched_pursuit,
)


def trace() -> PursuitTrace:
    """Two images, three heads, seven tokens, four features, two iterations; S is mostly 0."""
    source = torch.Generator().manual_seed(0)
    parts = [torch.randn(2, 3, 7, 4, generator=source) for _ in range(5)]
    sparse = tuple(part.where(part > 1.0, 0.0) for part in parts[1:3])
    return PursuitTrace(parts[0], sparse, tuple(parts[3:]))


def test_sizes_errors_and_ranks_equal_numpy() -> None:
    given = trace()
    found = {name: values.numpy() for name, values in decomposition(given).items()}
    keys = given.keys.double().numpy()
    for image in range(2):
        for iteration in range(2):
            each = []
            for head in range(3):
                k = keys[image, head]
                s = given.sparse[iteration][image, head].double().numpy()
                low = given.low_rank[iteration][image, head].double().numpy()
                values = np.linalg.svd(low, compute_uv=False)
                shares = values / values.sum()
                size = np.linalg.norm(k)
                rank = math.exp(-(shares * np.log(shares)).sum())
                error = np.linalg.norm(k - low - s) / size
                each.append([np.count_nonzero(s) / s.size, np.linalg.norm(s) / size, error, rank])
            for name, value in zip(
                ("nonzero", "sparse_norm", "residual", "effective_rank"), np.mean(each, axis=0), strict=True
            ):
                assert found[name][image, iteration] == pytest.approx(value, rel=1e-10), name
        squares = np.linalg.svd(given.low_rank[1][image].double().numpy(), compute_uv=False) ** 2
        explained = (squares.cumsum(-1) / squares.sum(-1, keepdims=True)).mean(0)
        # Four values: the points 1 to 4 of 16 have one of them, 5 to 8 two.
        np.testing.assert_allclose(
            found["curve"][image, [0, 1, 4, 5, 8, 16]], [0, *explained[[0, 0, 1, 1, 3]]]
        )
    assert found["keys_effective_rank"].shape == (2, 1)


def test_what_is_not_finite_has_no_value_and_leaves_the_others_alone() -> None:
    given = trace()
    given.low_rank[1][0, 1, 2, 3] = torch.nan
    found, before = decomposition(given), decomposition(trace())
    for name in ("residual", "effective_rank"):
        assert torch.isnan(found[name]).tolist() == [[False, True], [False, False]]
        assert torch.equal(found[name][1], before[name][1])
    assert torch.isnan(found["curve"][0, 1:]).all()
    assert torch.equal(found["nonzero"], before["nonzero"])


def test_auroc_equals_scikit_learn_with_ties() -> None:
    source = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 4, (20, 9), generator=source).double()
    positive = torch.rand(20, 9, generator=source) < 0.4
    positive[:, 0], positive[:, 1] = True, False
    expected = [roc_auc_score(y, x) for y, x in zip(positive.numpy(), scores.numpy(), strict=True)]
    assert auroc(scores, positive).tolist() == pytest.approx(expected, abs=1e-12)
    assert auroc(torch.zeros(1, 9), positive[:1]).tolist() == [0.5]
    scores[3, 5] = torch.nan
    assert torch.isnan(auroc(scores, positive)).nonzero().flatten().tolist() == [3]


def test_sizes_of_tokens_leave_the_prefix_out() -> None:
    part = torch.arange(24.0).reshape(1, 2, 3, 4) - 12
    by_token = part.abs().sum(dim=(0, 1, 3)).tolist()
    assert token_sizes(part, 1).tolist() == [by_token[1:]]


def test_arms_are_those_that_change_something_and_are_undone() -> None:
    released = RPCAttention(8, 2)
    other = RPCAttention(8, 2, threshold="paper", dual_sign=1, regularization=3.0)
    assert arms_of([released]) == ["no_sparse", "threshold_paper", "dual_sign_plus"]
    assert arms_of([other]) == ["no_sparse", "threshold_code", "dual_sign_minus"]
    both = [released, other]
    assert set(arms_of(both)) == {
        "no_sparse", "threshold_code", "threshold_paper", "dual_sign_minus", "dual_sign_plus"
    }  # fmt: skip

    def settings() -> list[tuple[float, str, int]]:
        return [(one.regularization, one.threshold, one.dual_sign) for one in both]

    before = settings()
    with as_arm(both, "threshold_paper"):
        assert settings() == [(4.0, "paper", -1), (3.0, "paper", 1)]
    assert settings() == before
    with pytest.raises(ZeroDivisionError), as_arm(both, "no_sparse"):
        both[0].regularization = 1 / (both[0].regularization - both[1].regularization)
    assert settings() == before


def test_without_a_sparse_part_the_gradient_is_finite_and_s_is_empty() -> None:
    torch.manual_seed(0)
    attention = RPCAttention(8, 2, iterations=3)
    x = torch.randn(2, 5, 8, requires_grad=True)
    with as_arm([attention], "no_sparse"):
        assert not any(sparse.any() for sparse in attention.pursuit(x).sparse)
        (gradient,) = torch.autograd.grad(attention(x).sum(), x)
    assert torch.isfinite(gradient).all()
    assert gradient.any()


IMAGES = torch.rand(20, 1, 4, 4, generator=torch.Generator().manual_seed(0))


def pursuing(regularization: float, layers: str = "last") -> nn.Module:
    torch.manual_seed(0)
    attention = functools.partial(RPCAttention, iterations=2, regularization=regularization)
    sizes = {"image_size": 4, "patch_size": 2, "width": 8, "heads": 2, "depth": 2}
    return Classifier(vit(4, 1, **sizes, attention=attention, layers=layers), [0.5], [0.5]).eval()  # type: ignore[arg-type]


def watched(model: nn.Module, *inputs: Tensor) -> dict[str, object]:
    with watched_pursuit(model) as found:
        for images in inputs:
            model(images)
    return dict(found)


def test_an_empty_sparse_part_is_found_and_one_that_is_not_empty_is_not() -> None:
    empty = {"inactive_pursuit": {"largest_share": 0.0, "examples": 3}}
    assert watched(pursuing(1e6), IMAGES[:3]) == empty
    assert watched(pursuing(1e6), IMAGES)["inactive_pursuit"] == {"largest_share": 0.0, "examples": 16}
    assert watched(pursuing(0.0), IMAGES[:3]) == {}
    assert watched(nn.Flatten(), IMAGES[:3]) == {}
    assert watched(pursuing(1e6)) == {}  # no pass
    # The first pass alone is looked at.
    assert watched(pursuing(1e6), IMAGES[:3], IMAGES) == empty


def test_one_active_layer_is_enough() -> None:
    model = pursuing(1e6, "all")
    assert watched(model, IMAGES[:3])
    model.backbone.blocks[1].attn.regularization = 0.0  # type: ignore[union-attr,index]
    assert watched(model, IMAGES[:3]) == {}


def test_padding_is_not_counted() -> None:
    torch.manual_seed(0)
    attention = RPCAttention(8, 2, iterations=1, regularization=0.0)

    class Padded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            block = nn.Module()
            block.attn = attention
            self.blocks = nn.ModuleList([block])

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            output: Tensor = self.blocks[0].attn(x, mask=mask)  # type: ignore[operator]
            return output

    model = Padded().eval()
    x, mask = torch.zeros(2, 5, 8), torch.tensor([[True, True, False, False, False]] * 2)
    with torch.no_grad():
        attention.qkv.bias.zero_()
    for place, expected in ((3, True), (1, False)):
        x.zero_()[:, place] = 1.0  # S is not 0 there alone
        with watched_pursuit(model) as found:
            model(x, mask)
        assert bool(found) is expected
