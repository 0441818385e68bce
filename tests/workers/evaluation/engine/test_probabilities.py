"""Probabilities in place of logits are found, and logits that happen to be in [0, 1] are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.models.layers.layers import Classifier
from assay.models.layers.series_model import RegressionModel
from assay.workers.evaluation.engine.probabilities import probability_evidence, returns_probabilities
from assay.workers.evaluation.engine.probe import first_look
from tests.support.programs import Net
from tests.support.shards import Given, shard

IMAGES = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
FOUND = {"probabilities": 4}
Answer = Callable[[Any, Tensor], Any]


class Small(Net):
    """A network with outputs near 0.5, as an untrained one may have."""

    def __init__(self, answer: Answer | None = None) -> None:
        super().__init__(answer)
        for layer in (self.conv, self.head):
            nn.init.normal_(layer.weight, std=0.01, generator=torch.Generator().manual_seed(0))
            nn.init.constant_(layer.bias, 0.5)  # type: ignore[arg-type]


def pixels(net: Any, x: Tensor) -> Tensor:
    scores: Tensor = net.conv(x)
    return scores


def asked(answer: Answer, network: type[Net] = Net) -> Any:
    net = Classifier(network(answer), [0.0] * 3, [1.0] * 3).eval()
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    numbers = torch.get_rng_state()
    found = probability_evidence(net, IMAGES)
    assert torch.equal(torch.get_rng_state(), numbers)
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    return found


@pytest.mark.parametrize(
    "answer",
    [
        lambda net, x: net.plain(x).softmax(1),
        lambda net, x: net.plain(x).sigmoid(),
        lambda net, x: (net.plain(x).softmax(1) + net.plain(x.flip(3)).softmax(1)) / 2,
        lambda net, x: 20 * net.plain(x).softmax(1),
        lambda net, x: net.plain(x).softmax(1) + 1e-3,
        lambda net, x: net.plain(x).clamp(0, 1),
        lambda net, x: pixels(net, x).softmax(1),
        lambda net, x: pixels(net, x).sigmoid(),
        lambda net, x: pixels(net, x).flatten(2).mT.softmax(-1),
        lambda net, x: (net.plain(x) + 0.0 * torch.rand_like(x).mean()).sigmoid(),
    ],
)
def test_probabilities_are_found(answer: Answer) -> None:
    assert asked(answer) == FOUND


@pytest.mark.parametrize(
    "answer",
    [
        lambda net, x: net.plain(x),
        lambda net, x: net.plain(x).log_softmax(1),
        lambda net, x: (net.plain(x).softmax(1) + net.plain(x.flip(3)).softmax(1)).log(),
        lambda net, x: 0 * net.plain(x),
        lambda net, x: pixels(net, x).flatten(2).mT,
        lambda net, x: net.plain(x) - net.plain(x).mean(1, keepdim=True),
    ],
)
def test_logits_are_not_taken_for_them(answer: Answer) -> None:
    assert asked(answer) == {}


@pytest.mark.parametrize("answer", [lambda net, x: net.plain(x), pixels], ids=["classes", "pixels"])
def test_the_weights_decide_where_the_outputs_do_not(answer: Answer) -> None:
    net = Small(answer).eval()
    with torch.no_grad():
        outputs = net(IMAGES)
        assert 0 < float(outputs.amin()) < float(outputs.amax()) < 1
        assert not returns_probabilities(net, IMAGES)
    assert asked(answer, Small) == {}
    assert asked(lambda net, x: answer(net, x).sigmoid(), Small) == FOUND


def test_predictions_of_numbers_are_no_classes() -> None:
    net = RegressionModel(Net(lambda net, x: net.plain(x).sigmoid()), [0.0] * 3, [1.0] * 3, 0.0, 1.0)
    assert probability_evidence(net, IMAGES) == {}


def test_the_first_look_at_a_shard_finds_them() -> None:
    net = Net(lambda net, x: net.plain(x).sigmoid()).eval()
    data = Given([str(row) for row in range(6)], images=lambda rows: IMAGES[list(rows)])
    assert first_look(shard(net, data), attacked=False) == FOUND
    assert first_look(shard(Net().eval(), data), attacked=False) == {}


def test_a_lack_of_memory_is_left_to_the_evaluation() -> None:
    class Full(nn.Module):
        def forward(self, _: Tensor) -> Tensor:
            raise torch.OutOfMemoryError

    assert probability_evidence(Full(), IMAGES) == {}
