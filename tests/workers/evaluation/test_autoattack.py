"""AutoAttack through the engine against the library: the same examples break in the same stages."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.attacks.adversarial.autoattack import autoattack
from assay.attacks.ensemble import Ensemble
from assay.attacks.randomness import Randomness
from assay.workers.evaluation.engine.ledger import ExampleOutcomes
from assay.workers.evaluation.engine.protocols import attack_pixel
from tests.attacks.adversarial.batches import digits, network

N, BATCH, QUERIES = 60, 40, 150
LIBRARY_NAMES = {"apgd-ce": "apgd_ce", "apgd-t": "apgd_t", "fab-t": "fab_t", "square": "square"}
CASES = [
    pytest.param("undefended", "Linf", 0.06, marks=pytest.mark.slow),
    pytest.param("fgsm-trained", "Linf", 0.12, marks=pytest.mark.slow),
    ("fgsm-trained", "L2", 0.6),
    ("fgsm-trained", "L1", 1.5),
    pytest.param("undefended", "L1", 1.5, marks=pytest.mark.slow),
]


@functools.cache
def ours(name: str, backend: str, norm: str, epsilon: float) -> ExampleOutcomes:
    """What the engine finds; several tests look at the same."""
    return run(network(name), backend, norm, epsilon, N)


def run(model: nn.Module, backend: str, norm: str, epsilon: float, n: int, **more: Any) -> ExampleOutcomes:
    images, labels = digits()
    attack: Ensemble = autoattack(epsilon=epsilon, norm=norm, queries=QUERIES, backend=backend)  # type: ignore[arg-type]

    def images_of(rows: Sequence[int]) -> Tensor:
        return images[list(rows)]

    arguments: dict[str, Any] = {"randomness": Randomness(0, attack.name), "batch_size": BATCH, **more}
    ids = [f"digit-{row:03d}" for row in range(n)]
    return attack_pixel(attack, model, images_of, labels[:n], ids, **arguments)


@functools.cache
def theirs(name: str, norm: str, epsilon: float) -> dict[str, Tensor]:
    """The robust flags after each stage of the library."""
    from pyautoattack import AutoAttack
    from pyautoattack.state import EvaluationState

    flags: dict[str, Tensor] = {}

    def note(state: EvaluationState, attack: str) -> None:
        flags[LIBRARY_NAMES[attack]] = state.robust_flags.clone()

    images, labels = digits()
    library = AutoAttack(network(name), norm=norm, eps=epsilon, seed=0)
    library.square.n_queries = QUERIES
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EvaluationState, "add_run_attack", note)
        library.run_standard_evaluation(images[:N], labels[:N], batch_size=BATCH)
    return flags


def left_after(outcomes: ExampleOutcomes) -> dict[str, Tensor]:
    assert outcomes.broken_by is not None
    left, flags = outcomes.clean_correct.clone(), {}
    for stage in outcomes.stages:
        left &= torch.tensor([name != stage.name for name in outcomes.broken_by])
        flags[stage.name] = left.clone()
    return flags


@pytest.mark.costly
@pytest.mark.parametrize(("name", "norm", "epsilon"), CASES)
def test_the_same_examples_break_in_the_same_stages(name: str, norm: str, epsilon: float) -> None:
    expected = theirs(name, norm, epsilon)
    found = left_after(ours(name, "compatible", norm, epsilon))
    assert expected.keys() <= found.keys(), "the library leaves stages out when nothing is left"
    for stage, flags in expected.items():
        assert torch.equal(found[stage], flags), stage
    assert 0 < int(expected["apgd_ce"].sum()) < N - 6


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["native", "pyautoattack"])
def test_other_backends_come_to_nearly_the_same(backend: str) -> None:
    expected = theirs("fgsm-trained", "Linf", 0.12)["square"]
    found = ours("fgsm-trained", backend, "Linf", 0.12).correct
    assert int((found != expected).sum()) <= 2


@pytest.mark.slow
def test_native_results_do_not_depend_on_the_batch() -> None:
    model = network("fgsm-trained").double()
    try:
        runs = [run(model, "native", "Linf", 0.12, 40, batch_size=size, dtype="float64") for size in (10, 40)]
    finally:
        model.float()
    assert runs[0].broken_by == runs[1].broken_by
    assert {None, "apgd_ce", "apgd_t"} <= set(runs[0].broken_by or ()), "it would prove little"
    assert torch.equal(runs[0].forward, runs[1].forward)


@pytest.mark.costly
def test_every_stage_counts_its_passes() -> None:
    outcomes = ours("fgsm-trained", "native", "Linf", 0.12)
    assert [stage.name for stage in outcomes.stages] == ["apgd_ce", "apgd_t", "fab_t", "square"]
    assert sum(stage.forward for stage in outcomes.stages) == int(outcomes.forward.sum())
    assert outcomes.stages[3].backward == 0
    assert outcomes.stages[0].n == int(outcomes.clean_correct.sum())


def test_version_rand_averages_gradients() -> None:
    attack = autoattack(epsilon=0.1, version="rand")
    assert [stage.name for stage in attack.stages] == ["apgd_ce", "apgd_dlr"]
    assert [stage.expectation.passes for stage in attack.stages] == [20, 20]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"version": "custom"}, "needs stages"),
        ({"stages": ["square"]}, "need version 'custom'"),
        ({"version": "custom", "stages": ["squares"]}, "squares"),
    ],
)
def test_wrong_combinations_are_refused(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        autoattack(epsilon=0.1, **params)
