"""The batch size changes nothing but rounding: issue 2's law, on two trained transformers and real digits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import pytest
import torch
from torch import nn

from assay.attacks.randomness import Randomness
from assay.workers.data.digits import digits
from assay.workers.data.formats.sampling import evaluation_order
from assay.workers.evaluation.engine.ledger import ExampleOutcomes
from assay.workers.jobs.evaluate import evaluation_of, shard_of
from assay.workers.jobs.loading import Loaded
from tests.support import networks

SIZE = 32
EXAMPLES = {"float64": 200, "float32": 500}
BATCH_SIZES = (7, 64, 500)  # the last has them all
STEPS = 12
# Breaks neither few nor nearly all, so that examples leave their batches at many different steps.
EPSILON = {"symvit": 0.015, "rpc_symvit": 0.015}


@dataclass(frozen=True)
class Run:
    """ExampleOutcomes of one batch size, and the random starts it drew, by example id."""

    outcomes: ExampleOutcomes
    starts: dict[str, torch.Tensor]


@pytest.fixture(scope="session")
def trained() -> dict[str, nn.Module]:
    """Both models, trained for some seconds."""
    return {name: networks.network(name).requires_grad_(False) for name in EPSILON}


@pytest.fixture(scope="session")
def attacked(trained: dict[str, nn.Module]):
    """Runs PGD with a random start and caches the results."""
    data = digits(None, "train")

    @cache
    def run(name: str, dtype: str, batch_size: int) -> Run:
        order = evaluation_order(data.name, data.ids, EXAMPLES[dtype])
        starts: dict[str, torch.Tensor] = {}
        uniform = Randomness.uniform

        def noting(self, ids, shape, **key):
            drawn = uniform(self, ids, shape, **key)
            if key.get("step", 0) == 0:
                starts.update({i: one.double().cpu() for i, one in zip(ids, drawn, strict=True)})
            return drawn

        precision = getattr(torch, dtype)
        loaded = Loaded(
            trained[name].to(precision),
            SIZE,
            "",
            untrained=False,
            device=torch.device("cpu"),
            dtype=precision,
        )
        spec = {"seed": 5, "execution": {"dtype": dtype}}
        shard = shard_of(spec, loaded, data, order, batch_size=batch_size)
        item = {"name": "pgd", "params": {"epsilon": EPSILON[name], "steps": STEPS}}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Randomness, "uniform", noting)
            found = evaluation_of(item, data.task).measure(shard)
            assert isinstance(found, ExampleOutcomes)
            return Run(found, starts)

    return run


@pytest.mark.costly
@pytest.mark.parametrize("name", EPSILON)
@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.slow)])
def test_batch_sizes_change_nothing_but_rounding(
    attacked, name: str, dtype: str, record_property, capsys: pytest.CaptureFixture[str]
) -> None:
    first, *others = (attacked(name, dtype, size) for size in BATCH_SIZES)
    right, left = (c.double().mean().item() for c in (first.outcomes.clean_correct, first.outcomes.correct))
    broken = right - left
    assert 0.2 <= broken <= 0.8, f"{broken:.0%} broken: the test would prove nothing"
    assert right > 0.7, "trained"
    assert len(first.starts) == first.outcomes.clean_correct.sum()
    allowed = 0 if dtype == "float64" else 1
    for size, other in zip(BATCH_SIZES[1:], others, strict=True):
        assert other.starts.keys() == first.starts.keys()
        assert all(torch.equal(other.starts[i], start) for i, start in first.starts.items())
        assert other.outcomes.ids == first.outcomes.ids
        differing = different(first.outcomes, other.outcomes)
        record_property(f"differing_{name}_{dtype}_{BATCH_SIZES[0]}_{size}", differing)
        with capsys.disabled():
            print(
                f"\n{name}, {dtype}, batch size {size} against {BATCH_SIZES[0]}: {differing} of"
                f" {EXAMPLES[dtype]} outcomes differ ({broken:.1%} broken, {right:.1%} right before)",
                end="",
            )
        assert differing <= allowed


def different(one: ExampleOutcomes, other: ExampleOutcomes) -> int:
    """How many examples differ in prediction, correctness or number of passes."""
    columns = ("prediction", "correct", "forward", "backward")
    unequal = [getattr(one, column) != getattr(other, column) for column in columns]
    return int(torch.stack(unequal).any(0).sum())


@pytest.mark.costly
def test_a_difference_would_be_seen(attacked) -> None:
    outcomes = attacked("symvit", "float64", BATCH_SIZES[0]).outcomes
    changed = outcomes.forward.clone()
    changed[3] += 1
    assert different(outcomes, replace(outcomes, forward=changed)) == 1
