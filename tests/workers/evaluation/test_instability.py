"""The instability score against values known on paper, softmax beside itself, and the merge."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.models.layers.layers import Classifier
from assay.models.sequence_transformer import sequence_transformer
from assay.models.series_transformer import series_transformer
from assay.models.vit import vit
from assay.service.metrics.table import Context
from assay.service.metrics.tables.instability import METRICS, Instability
from assay.workers.evaluation.engine.analysis import Measured
from assay.workers.evaluation.instability import instability, last_output, step_score, with_softmax
from tests.support.shards import Given, shard

pytestmark = pytest.mark.trains

CLASSES, EXAMPLES = 5, 12
IDS = [f"example-{number}" for number in range(EXAMPLES)]
SMALL: dict[str, Any] = {"image_size": 16, "patch_size": 4, "width": 16, "heads": 2, "depth": 2}
SHORT: dict[str, Any] = {"width": 16, "heads": 2, "depth": 2, "hidden": 16, "length": 12}


def images() -> Tensor:
    return torch.rand(EXAMPLES, 3, 16, 16, generator=torch.Generator().manual_seed(1))


class Sentences(Given):
    """Token sequences with padding."""

    def tokens(self, indices: Any, length: int) -> Tensor:
        """Token ids, (B, N)."""
        return torch.tensor([[1 + (index + place) % 9 for place in range(6)] + [0] * 3 for index in indices])


def series() -> Tensor:
    values = torch.randn(EXAMPLES, 3, 10, generator=torch.Generator().manual_seed(2))
    present = torch.ones(EXAMPLES, 1, 10)
    present[::2, :, 7:] = 0
    return torch.cat([values * present, present], dim=1)


def data_of(task: str) -> Given:
    labels = torch.arange(EXAMPLES) % CLASSES
    if task == "sequence":
        return Sentences(IDS, task=task, classes=CLASSES, labels=labels)
    every = images() if task == "classification" else series()
    return Given(IDS, task=task, classes=CLASSES, labels=labels, images=lambda rows: every[list(rows)])


def model_of(task: str, attention: str = "softmax", **more: Any) -> nn.Module:
    torch.manual_seed(0)
    if task == "sequence":
        return sequence_transformer(CLASSES, 10, attention=attention, **SHORT, **more)
    if task == "series":
        return series_transformer(CLASSES, 3, attention=attention, **SHORT, **more)
    return Classifier(vit(CLASSES, 3, attention=attention, **SMALL, **more), (0.5,) * 3, (0.5,) * 3)


def measured(
    model: nn.Module, task: str, order: list[int] | None = None, seed: int = 0, **parameters: Any
) -> Measured:
    model = model.eval().requires_grad_(False)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.random.get_rng_state()
    given: Any = {"steps": 3, "batch": 4, **parameters}
    found = instability(**given).measure(shard(model, data_of(task), order, image_size=12, seed=seed))
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not any(part.training for part in model.modules())
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert torch.equal(torch.random.get_rng_state(), state)
    assert isinstance(found, Measured)
    return found


def test_a_linear_model_has_the_squared_length_of_its_input() -> None:
    # One SGD step moves W by -r (p - y) x^T, so f = W x moves by |x|^2 times what W does: tau = |x|^2 = 25.
    model = nn.Linear(2, 3, bias=False).double()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    x, labels = torch.tensor([[3.0, 4.0]], dtype=torch.float64), torch.tensor([2])
    for _ in range(3):
        start = model.weight.detach().clone()
        assert step_score(model, model, optimiser, x, labels) == pytest.approx(25.0, rel=1e-12)
        slope = torch.softmax(x @ start.T, dim=1) - torch.tensor([[0.0, 0.0, 1.0]])
        torch.testing.assert_close(model.weight.detach(), start - 0.1 * slope.T @ x)  # the step was taken


def test_orthogonal_inputs_of_a_batch_weigh_by_what_each_moved() -> None:
    # From W = 0 with two classes p - y is (-1/2, 1/2) or its negative, and W moves by the sum of
    # -r/2 (p - y) x_b^T: |dW|^2 = c (|x_1|^2 + |x_2|^2), and as x_1 is orthogonal to x_2,
    # |df|^2 = c (|x_1|^4 + |x_2|^4).
    model = nn.Linear(2, 2, bias=False).double()
    nn.init.zeros_(model.weight)
    x = torch.tensor([[1.0, 0.0], [0.0, 2.0]], dtype=torch.float64)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
    assert step_score(model, model, optimiser, x, torch.tensor([0, 1])) == pytest.approx((1 + 16) / (1 + 4))


def test_without_a_change_of_the_weights_there_is_no_score() -> None:
    model = nn.Linear(2, 3, bias=False)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.0)
    assert math.isnan(step_score(model, model, optimiser, torch.ones(1, 2), torch.tensor([0])))


@pytest.mark.parametrize("task", ["classification", "sequence", "series"])
@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
def test_softmax_beside_itself_has_ratio_one(task: str, optimiser: str) -> None:
    found = measured(model_of(task), task, optimiser=optimiser)
    assert found.ids == ("step-0001", "step-0002", "step-0003")
    assert torch.equal(found.values["score"], found.values["softmax_score"])
    assert (found.values["score"] > 0).all()
    assert found.facts == {"mechanisms": ["softmax"], "drawn": 0, "batch": 4, "examples": EXAMPLES}
    summary = Instability().summarise(found.columns(), Context(evidence=[found.evidence()]))
    assert summary.metrics["instability_ratio"].value == 1.0


@pytest.mark.parametrize("attention", ["kernelized", "skyformer", "nystromformer", "primal"])
def test_softmax_shares_the_weights_that_fit(attention: str) -> None:
    model = model_of("sequence", attention)
    other, facts = with_softmax(model, 0)
    own, softmax = model.state_dict(), other.state_dict()
    shared = [name for name in softmax if name in own and own[name].shape == softmax[name].shape]
    assert all(torch.equal(own[name], softmax[name]) for name in shared)
    missing = sum(value.numel() for name, value in softmax.items() if name not in shared)
    assert facts == {"mechanisms": [attention], "drawn": missing}
    assert missing == (2 * (3 * 16 * 16 + 3 * 16) if attention == "primal" else 0)
    again, changed = with_softmax(model, 0)[0].state_dict(), with_softmax(model, 1)[0].state_dict()
    assert all(torch.equal(again[name], value) for name, value in softmax.items())
    assert all(torch.equal(changed[name], value) for name, value in softmax.items()) == (missing == 0)


@pytest.mark.costly
@pytest.mark.parametrize("task", ["classification", "sequence", "series"])
@pytest.mark.parametrize("attention", ["kernelized", "primal"])
def test_another_mechanism_differs_and_repeats_itself(task: str, attention: str) -> None:
    found = measured(model_of(task, attention), task)
    again = measured(model_of(task, attention), task, list(reversed(range(EXAMPLES))))
    assert torch.equal(found.values["score"], again.values["score"]), "the order of the rows plays no part"
    assert not torch.equal(found.values["score"], found.values["softmax_score"])
    assert not torch.equal(
        found.values["score"], measured(model_of(task, attention), task, seed=1).values["score"]
    )
    assert found.forward.tolist() == [24] * 3
    assert found.backward.tolist() == [8] * 3


def test_the_score_is_that_of_the_last_layer_without_padding() -> None:
    model = model_of("sequence").eval()
    tokens = torch.tensor([[1, 2, 3, 0, 0]])
    with last_output(model) as features, torch.no_grad():
        found = features(tokens)
    assert found.shape == (1, 5, 16)
    assert (found[:, 3:] == 0).all()
    normed = model.get_submodule("encoder.norm")(found[:, :3])
    with torch.no_grad():
        expected = model.get_submodule("head")(normed.mean(dim=1))
    torch.testing.assert_close(model(tokens), expected)
    with last_output(model, "final_norm") as features, torch.no_grad():
        torch.testing.assert_close(features(tokens)[:, :3], normed)
        assert (features(tokens)[:, 3:] == 0).all()
    assert not any(part._forward_hooks for part in model.modules())


def test_a_norm_behind_the_layers_takes_the_scale_out_of_the_score() -> None:
    model = model_of("sequence", "kernelized")
    scores = [
        measured(model, "sequence", output=output).values["score"] for output in ("last_layer", "final_norm")
    ]
    assert not torch.equal(*scores)
    released: dict[str, Any] = {"norm": "batch", "norm_first": False}
    with pytest.raises(ValueError, match="no norm behind its layers"):
        measured(model_of("series", **released), "series", output="final_norm")


def test_batch_statistics_alone_are_no_change() -> None:
    released: dict[str, Any] = {"norm": "batch", "norm_first": False}
    model = model_of("series", **released)
    slow = measured(model, "series", optimiser="sgd", rate=1e-3, steps=2)
    slower = measured(model, "series", optimiser="sgd", rate=1e-4, steps=2)
    # To first order the score does not depend on the rate; running statistics would dominate at low rates.
    assert slower.values["score"][0] == pytest.approx(float(slow.values["score"][0]), rel=0.05)


def test_a_model_without_such_attention_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a model with attention of the catalog"):
        measured(nn.Sequential(nn.Flatten(), nn.Linear(768, CLASSES)), "classification")


def test_the_merge_is_the_mean_of_the_ratios() -> None:
    rows = {"score": [1.0, 6.0], "softmax_score": [2.0, 4.0]}
    summary = Instability().summarise(rows, Context(evidence=[{"mechanisms": ["performer"]}]))
    values = {name: metric.value for name, metric in summary.metrics.items()}
    assert values == {"instability_ratio": 1.0, "instability": 3.5, "softmax_instability": 3.0}
    ratio = summary.metrics["instability_ratio"]
    half = 12.706204736 * 0.5  # Student's t of one degree of freedom, times the standard error
    assert (ratio.ci_low, ratio.ci_high) == (pytest.approx(1 - half), pytest.approx(1 + half))
    assert (ratio.n, ratio.ci_method, ratio.higher_is_better) == (2, "t", False)
    assert tuple(summary.metrics) == METRICS
    assert summary.plot is not None
    assert "performer" in summary.plot
