"""Distances between heads, against attention whose distances are known."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from assay.models.layers.layers import Classifier
from assay.models.vit import vit
from assay.service.catalog.catalog import load
from assay.service.contract.errors import InvalidSpec
from assay.service.submission.validate import validate
from assay.workers.evaluation.engine.analysis import Measured
from assay.workers.evaluation.head_distance import distances, head_distance
from tests.support.shards import Given, shard


def test_heads_that_look_at_themselves_at_the_next_and_at_all() -> None:
    itself, uniform = torch.eye(4).double(), torch.full((4, 4), 0.25).double()
    matrix = torch.stack([itself, itself.roll(1, dims=1), uniform])[None]
    rows = [math.sqrt(2), math.sqrt(0.75**2 + 3 * 0.25**2), math.sqrt(0.75**2 + 3 * 0.25**2)]
    found = distances(matrix, normalisation="row")
    assert found["distance"].item() == pytest.approx(sum(rows) / 3)
    assert found["squared_distance"].item() == pytest.approx(sum(row**2 for row in rows) / 3)
    whole = distances(matrix, normalisation="matrix")
    assert whole["distance"].item() == pytest.approx(2 * sum(rows) / 3)  # sqrt(N) times, N = 4
    assert distances(matrix[:, :1], normalisation="matrix")["distance"].isnan().item()


def test_the_extremes() -> None:
    """At most sqrt(2 N), for heads that never look at the same token; 0 for equal heads."""
    itself = torch.eye(9).double()
    apart = torch.stack([itself, itself.roll(1, dims=1)])[None]
    assert distances(apart, normalisation="matrix")["distance"].item() == pytest.approx(math.sqrt(18))
    assert distances(apart, normalisation="row")["distance"].item() == pytest.approx(math.sqrt(2))
    assert distances(apart[:, [0, 0]], normalisation="matrix")["distance"].item() == 0


def test_of_a_model_each_layer_and_example() -> None:
    torch.manual_seed(0)
    backbone = vit(4, 1, image_size=16, patch_size=4, depth=3, width=24, heads=3)
    images = torch.rand(5, 1, 16, 16)
    data = Given([*"abcde"], images=lambda rows: images[list(rows)])
    model = Classifier(backbone, [0.5], [0.5]).eval()
    with torch.no_grad():  # equal heads in layer 1
        for name in ("weight", "bias"):
            rows = getattr(backbone.blocks[1].attn.qkv, name)  # type: ignore[union-attr,index]
            rows[:48] = (
                rows[:48]
                .unflatten(0, (2, 3, 8))[:, :1]
                .expand_as(rows[:48].unflatten(0, (2, 3, 8)))
                .flatten(0, 2)
            )
    found = {size: head_distance().measure(shard(model, data, batch_size=size)) for size in (2, 5)}
    assert isinstance(found[2], Measured)
    assert found[2].facts == {"layers": [0, 1, 2]}
    values = found[2].values["distance"]
    assert values.shape == (5, 3)
    assert values[:, [0, 2]].min() > 1e-4
    assert values[:, 1].max() < 1e-6
    torch.testing.assert_close(values, found[5].values["distance"], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"heads": 1}, "heads must be at least 2"),
        ({"heads": 4, "attention": "primal"}, "attention matrix in every layer"),
        ({"heads": 4}, None),
    ],
)
def test_what_the_service_refuses(params: dict[str, Any], message: str | None) -> None:
    body = {
        "kind": "evaluate",
        "model": {"name": "vit", "params": params | {"width": 96}},
        "data": {"name": "digits"},
        "evaluations": [{"name": "head_distance"}, {"name": "attention_spectrum"}],
    }
    if message is None:
        assert validate(load(), body)
        return
    with pytest.raises(InvalidSpec, match=message) as refused:
        validate(load(), body)
    assert "attention_spectrum" not in str(refused.value)
