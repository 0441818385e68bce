"""Traces of attacks: what is seen of each step, and that seeing changes nothing."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch
from torch import nn

from assay.attacks.adversarial.apgd_ce import apgd_ce
from assay.attacks.adversarial.autoattack import autoattack
from assay.attacks.adversarial.pgd import pgd
from assay.models.layers.layers import Classifier
from assay.service.contract.findings.traces import TraceFile
from assay.workers import catalog
from assay.workers.evaluation.engine.attack import traces
from assay.workers.evaluation.engine.ledger import ExampleOutcomes
from tests.support.shards import Given, shard

N = 7
IMAGES = torch.rand(N, 3, 4, 4, generator=torch.Generator().manual_seed(0))


class Flat(nn.Module):
    """Equal logits everywhere: no gradient."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return 0 * images.flatten(1)[:, :4] + torch.tensor([1.0, 0, 0, 0])


def model(backbone: nn.Module | None = None) -> Classifier:
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        layers = nn.Sequential(nn.Flatten(), nn.Linear(48, 16), nn.Tanh(), nn.Linear(16, 4))
    return Classifier(backbone or layers, (0.5,) * 3, (0.5,) * 3).eval().requires_grad_(False)


def labels(net: Classifier) -> torch.Tensor:
    """The model's answers, but for the last example, which is wrong before."""
    answers: torch.Tensor = net(IMAGES).argmax(1)
    answers[-1] = (answers[-1] + 1) % 4
    return answers


def measured(attack: Any, net: Classifier, **more: Any) -> ExampleOutcomes:
    data = Given([f"e{row}" for row in range(N)], images=lambda rows: IMAGES[list(rows)], labels=labels(net))
    found = catalog.task("classification").attack(attack).measure(shard(net, data, batch_size=3, **more))
    assert isinstance(found, ExampleOutcomes)
    return found


def steps_of(found: ExampleOutcomes) -> dict[str, list[dict[str, Any]]]:
    [file] = [file for file in found.files() if file.stem == "trace"]
    read = TraceFile.model_validate_json(file.content)
    return {example: [step._asdict() for step in steps] for example, steps in read.examples.items()}


@pytest.mark.parametrize("protocol", ["pixel", "paper"])
@pytest.mark.parametrize("epsilon", [0.02, 0.3])
def test_the_steps_of_pgd_are_seen_and_nothing_changes(protocol: str, epsilon: float) -> None:
    net, attack = model(), pgd(epsilon=epsilon, steps=6, random_start=False)
    found = measured(attack, net, protocol=protocol, save_traces=3)
    without = measured(attack, net, protocol=protocol)
    assert found.columns() == without.columns()
    assert found.evidence() == without.evidence()
    assert [file.stem for file in without.files()] == []
    steps = steps_of(found)
    assert list(steps) == ["e0", "e1", "e2"]
    rows = found.columns()
    for place, seen in enumerate(steps.values()):
        assert [step["step"] for step in seen] == list(range(len(seen)))
        assert {step["stage"] for step in seen} == {"pgd"}
        assert seen[0]["linf"] == 0
        assert all(step["linf"] <= epsilon + 1e-6 and step["gradient"] != 0 for step in seen)
        assert seen[-1]["objective"] >= seen[0]["objective"]
        if protocol == "pixel":
            # The first misclassified iterate is the last that is seen, and the outcome.
            assert [step["margin"] < 0 for step in seen[:-1]] == [False] * (len(seen) - 1)
            assert (seen[-1]["margin"] < 0) == (not rows["correct"][place])
            assert len(seen) <= 7


def test_stages_and_restarts_are_told_apart() -> None:
    net = model()
    attack = autoattack(epsilon=0.01, version="custom", stages=["apgd_ce", "square"], queries=20)
    seen = steps_of(measured(attack, net, save_traces=1))["e0"]
    assert {step["stage"] for step in seen} == {"apgd_ce"}
    seen = steps_of(measured(apgd_ce(epsilon=1e-4, steps=4, restarts=2), net, save_traces=1))["e0"]
    assert {step["restart"] for step in seen} == {0, 1}


def test_a_gradient_of_zero_is_seen_and_an_example_that_was_wrong_is_not() -> None:
    found = steps_of(measured(pgd(epsilon=0.1, steps=3), model(Flat()), save_traces=N))
    assert f"e{N - 1}" not in found
    taken = [step["gradient"] for step in found["e0"]]
    assert set(taken) == {0.0}


def test_a_trace_is_bounded_and_names_no_number_that_is_not_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "MAX_STEPS", 2)
    seen = steps_of(measured(pgd(epsilon=1e-4, steps=6, random_start=False), model(), save_traces=2))
    assert [len(steps) for steps in seen.values()] == [2, 2]
    watched = traces.Traces(["a"], 1)
    state = {
        **{key: torch.zeros(1, dtype=torch.int64) for key in ("row", "restart", "iteration", "truth")},
        **{key: torch.zeros(1, 1, 1, 2) for key in ("adversarial", "images")},
        "broken": torch.tensor([False]),
    }
    nothing = torch.tensor([False])
    watched(
        state, torch.tensor([[math.nan, 0.0]]), torch.tensor([math.inf]).double(), state["images"], nothing
    )
    content = watched.content()
    assert content is not None
    assert json.loads(content)["examples"] == {"a": [["", 0, 0, None, None, 0.0, 0.0, None]]}
