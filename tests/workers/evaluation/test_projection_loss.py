"""J_proj against the stored vectors and against its formula, written out for one head at a time."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from assay.models.attention.softmax_standardized import StandardizedSoftmaxAttention
from assay.models.layers.layers import Classifier
from assay.models.vit import vit
from assay.workers.evaluation.engine.analysis import Measured
from assay.workers.evaluation.projection_loss import parts, projection_loss
from tests.support.shards import Given, shard

VECTORS = Path(__file__).resolve().parents[2] / "vectors"


def vector(name: str) -> tuple[dict[str, Tensor], float]:
    """Result of `parts` on a stored input, and the stored value of the released code."""
    stored = np.load(VECTORS / f"{name}.npz")
    layer = StandardizedSoftmaxAttention(12, 3).double()
    weights = {key[2:]: torch.from_numpy(stored[key]).double() for key in stored if key.startswith("w.")}
    layer.load_state_dict(weights)
    with torch.no_grad():
        seen = layer.queries_keys_values(torch.from_numpy(stored["x"]).double())
        return parts(*seen, form="released"), float(stored["log_mean_error64"])


def mean_loss(found: dict[str, Tensor]) -> float:
    return float((found["log_phi"].exp() - found["output"]).mean())


def test_equals_the_released_code() -> None:
    found, stored = vector("reconstruction")
    assert math.log(mean_loss(found)) == pytest.approx(stored, rel=1e-12)


def test_is_negative_where_the_released_code_logs_nan() -> None:
    found, stored = vector("reconstruction_nan")
    assert math.isnan(stored)
    assert mean_loss(found) < 0


def slow(q: Tensor, k: Tensor, v: Tensor, form: str) -> list[float]:
    """||phi(q_i)||^2 - ||h_i||^2 of each token of one head (N, D), as the paper or the code writes it."""
    n, d = q.shape
    scale, found = d**-0.5, []
    for i in range(n):
        weights = [math.exp(float(q[i] @ k[j]) * scale) for j in range(n)]
        total = sum(weights)
        h = sum(weights[j] / total * v[j] for j in range(n))
        if form == "paper":
            phi = math.exp(float(q[i] @ q[i]) * scale) / total**2
        else:
            column = (weights[0] / total) ** 2
            phi = math.exp(float(q[i] @ q[i])) / math.exp(2 * float(q[i] @ k[0]) - math.log(column))
        found.append(phi - float(h @ h))
    return found


@pytest.mark.parametrize("form", ["paper", "released"])
def test_equals_the_formula(form: str) -> None:
    torch.manual_seed(1)
    q, k, v = (torch.randn(2, 3, 5, 4, dtype=torch.float64) for _ in range(3))
    found = parts(q, k, v, form=form)  # type: ignore[arg-type]
    for row in range(2):
        terms = [x for head in range(3) for x in slow(q[row, head], k[row, head], v[row, head], form)]
        loss = float(found["log_phi"][row].exp() - found["output"][row])
        assert loss == pytest.approx(sum(terms) / 15, rel=1e-10)
        assert int(found["negative"][row]) == sum(term < 0 for term in terms)
        assert int(found["terms"][row]) == 15


def test_a_norm_that_no_float_holds_is_kept_as_a_logarithm() -> None:
    q = torch.full((1, 1, 2, 4), 20.0, dtype=torch.float64)
    found = parts(q, q / 10, q, form="released")
    # |q|^2 = 1600, q.k = 160, A = 1/2: log(e^1600 / 4 / e^320).
    assert float(found["log_phi"]) == pytest.approx(1600 - 320 - math.log(4), rel=1e-14)


def test_another_batch_changes_rounding_only() -> None:
    torch.manual_seed(2)
    backbone = vit(4, 1, image_size=16, patch_size=4, depth=3, width=16, heads=2, attention="rpc")
    model = Classifier(backbone, (0.5,), (0.5,)).eval()
    images, ids = torch.rand(7, 1, 16, 16), [str(row) for row in range(7)]
    data, analysis = (
        Given(ids, images=lambda rows: images[list(rows)]),
        projection_loss(form="paper", layers=[0, 2]),
    )
    found = {size: analysis.measure(shard(model, data, batch_size=size)) for size in (2, 7)}
    assert found[2].facts == {"layers": [0, 2]}
    for name, values in found[2].values.items():
        assert values.shape == (7, 2)
        torch.testing.assert_close(values, found[7].values[name], rtol=1e-4, atol=1e-6)


def test_progress_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """After running out of memory in the middle of a pass, no example is counted twice."""
    model = Classifier(vit(4, 1, image_size=16, patch_size=4, depth=2, width=16, heads=2), (0.5,), (0.5,))
    images = torch.rand(5, 1, 16, 16)
    data = Given([str(row) for row in range(5)], images=lambda rows: images[list(rows)])
    last = model.backbone.blocks[-1]  # type: ignore[union-attr,index]
    whole = type(last).forward

    def limited(block: object, x: Tensor, **keywords: object) -> Tensor:
        if block is last and len(x) > 2:
            raise torch.OutOfMemoryError
        return whole(block, x, **keywords)  # type: ignore[arg-type]

    def run(size: int) -> tuple[Tensor, list[int], object]:
        told: list[int] = []
        found = projection_loss().measure(shard(model, data, batch_size=size, progress=told.append))
        assert isinstance(found, Measured)
        return found.values["log_phi"], told, found.facts.get("reduced_batch")

    plain, told, reduced = run(2)
    assert (told, reduced) == ([2, 4, 5], None)
    monkeypatch.setattr(type(last), "forward", limited)
    values, told, reduced = run(5)
    assert (told, reduced) == ([5], {"asked": 5, "used": 2})
    assert torch.equal(values, plain)
    assert model.training
