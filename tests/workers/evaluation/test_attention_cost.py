"""Cost of an attention layer against values known on paper, and its merge."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from assay.models.layers.layers import Classifier
from assay.models.vit import vit
from assay.service.metrics.table import Context
from assay.service.metrics.tables.attention_cost import GROWTHS, RATIOS, AttentionCost
from assay.workers.evaluation.attention_cost import attention_cost
from assay.workers.evaluation.engine.analysis import Measured
from tests.support.shards import Given, shard

WIDTH, HEADS = 16, 2
SMALL: dict[str, Any] = {"image_size": 16, "patch_size": 4, "width": WIDTH, "heads": HEADS, "depth": 2}
DEVICE = {"type": "cpu", "name": "a processor"}


def measured(model: nn.Module, **parameters: Any) -> Measured:
    wrapped = Classifier(model, (0.5,) * 3, (0.5,) * 3).eval().requires_grad_(False)
    data = Given(["0"], images=lambda rows: torch.rand(len(rows), 3, 16, 16))
    before = {name: value.clone() for name, value in wrapped.state_dict().items()}
    found = attention_cost(repeats=3, **parameters).measure(shard(wrapped, data))
    assert all(torch.equal(before[name], value) for name, value in wrapped.state_dict().items())
    assert not wrapped.training
    assert isinstance(found, Measured)
    return found


def test_operations_of_the_layer_are_the_analytic_ones() -> None:
    found = measured(vit(5, 3, attention="performer", layers="last", **SMALL), lengths=[32, 64])
    assert found.facts["mechanism"] == "performer"
    assert found.facts["refused"] == {}
    for counted in found.facts["counted"]:
        tokens, features, size = counted["length"], 128, WIDTH // HEADS
        projections = 2 * tokens * 4 * WIDTH * WIDTH
        own = 2 * HEADS * tokens * features * (2 * size + 2 * size + 1)
        assert counted["test_flops"] == projections + own
        assert counted["softmax_test_flops"] == projections + 4 * tokens**2 * WIDTH
        assert counted["train_bytes"] > counted["test_bytes"] > 0
    assert found.ids == tuple(f"{length:06d}-{repeat:04d}" for length in (32, 64) for repeat in range(3))
    assert all((values > 0).all() for values in found.values.values())


def test_softmax_beside_itself_has_ratio_one() -> None:
    found = measured(vit(5, 3, **SMALL), lengths=[32, 128])
    summary = AttentionCost().summarise(found.columns(), Context(evidence=[found.evidence()], device=DEVICE))
    assert set(summary.metrics) == {*RATIOS, *GROWTHS}
    for name in ("test_flops_ratio", "train_flops_ratio", "test_memory_ratio"):
        assert summary.metrics[name].value == pytest.approx(1, abs=0.01)
    assert summary.plot is not None
    assert summary.plot.startswith("<svg")


def test_the_merge_is_of_the_longest_sequence_and_the_two_longest() -> None:
    sides = {
        "test_seconds": 4.0,
        "train_seconds": 6.0,
        "softmax_test_seconds": 2.0,
        "softmax_train_seconds": 1.0,
    }
    rows = {name: [value / 8] * 3 + [value] * 3 + [None] * 3 for name, value in sides.items()}
    counted = [
        {"length": 10, "test_bytes": 10, "train_bytes": 10, "test_flops": 1, "train_flops": 1},
        {"length": 20, "test_bytes": 20, "train_bytes": 60, "test_flops": 3, "train_flops": 5},
    ]
    base = {f"softmax_{kind}_{what}": 10 for kind in ("test", "train") for what in ("bytes", "flops")}
    facts = {
        "mechanism": "performer",
        "refused": {"40": "too long"},
        "counted": [one | base for one in counted],
    }
    summary = AttentionCost().summarise(rows, Context(evidence=[facts], device=DEVICE))
    values = {name: metric.value for name, metric in summary.metrics.items()}
    assert values == pytest.approx(
        {
            "test_time_ratio": 2.0,
            "train_time_ratio": 6.0,
            "test_memory_ratio": 2.0,
            "train_memory_ratio": 6.0,
            "test_flops_ratio": 0.3,
            "train_flops_ratio": 0.5,
            "time_growth": 3.0,
            "memory_growth": 1.0,
        }
    )
    assert "too long" in summary.warnings[0].message
    methods = {name: summary.metrics[name].ci_method for name in ("time_growth", "memory_growth")}
    assert methods["memory_growth"] == "exact"
    assert methods["time_growth"] == summary.metrics["test_time_ratio"].ci_method != "exact"
    assert summary.metrics["time_growth"].n == 3


def test_lengths_that_a_layer_was_not_made_for_are_named() -> None:
    model = vit(5, 3, attention="linformer", **SMALL)
    found = measured(model, lengths=[8, 17, 512])
    assert [counted["length"] for counted in found.facts["counted"]] == [8, 17]
    assert list(found.facts["refused"]) == ["512"]
    assert found.columns()["test_seconds"][6:] == [None] * 3  # every length has its rows
    assert found.forward.tolist() == [4] * 6 + [0] * 3
    summary = AttentionCost().summarise(found.columns(), Context(evidence=[found.evidence()], device=DEVICE))
    assert summary.metrics["test_time_ratio"].n == 3


def test_a_model_without_such_attention_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a model with attention of the catalog"):
        measured(nn.Sequential(nn.Flatten(), nn.Linear(768, 5)))


def test_lengths_ascend() -> None:
    with pytest.raises(ValueError, match=r"lengths must be in ascending order, each once: got \[64, 32\]"):
        attention_cost(lengths=[64, 32])
