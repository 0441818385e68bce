"""AutoAttack through the engine against the library: the same examples break in the same stages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attacks.adversarial.autoattack import autoattack
from attacks.ensemble import Ensemble
from attacks.randomness import Randomness
from tests.attacks.adversarial.batches import digits, network
from workers.evaluation.engine import attack_pixel
from workers.evaluation.outcomes import Outcomes

N, BATCH, QUERIES = 96, 40, 150
LIBRARY_NAMES = {"apgd-ce": "apgd_ce", "apgd-t": "apgd_t", "fab-t": "fab_t", "square": "square"}
CASES = [("undefended", "Linf", 0.06), ("fgsm-trained", "Linf", 0.12), ("fgsm-trained", "L2", 0.6)]


def ours(model: nn.Module, backend: str, norm: str, epsilon: float, **more: Any) -> Outcomes:
    images, labels = digits()
    attack: Ensemble = autoattack(epsilon=epsilon, norm=norm, queries=QUERIES, backend=backend)  # type: ignore[arg-type]

    def images_of(rows: Sequence[int]) -> Tensor:
        return images[list(rows)]

    arguments: dict[str, Any] = {"randomness": Randomness(0, attack.name), "batch_size": BATCH, **more}
    ids = [f"digit-{row:03d}" for row in range(N)]
    return attack_pixel(attack, model, images_of, labels[:N], ids, **arguments)


def theirs(model: nn.Module, norm: str, epsilon: float, monkeypatch: pytest.MonkeyPatch) -> dict[str, Tensor]:
    """The robust flags after each stage of the library."""
    from pyautoattack import AutoAttack
    from pyautoattack.state import EvaluationState

    flags: dict[str, Tensor] = {}

    def note(state: EvaluationState, attack: str) -> None:
        flags[LIBRARY_NAMES[attack]] = state.robust_flags.clone()

    monkeypatch.setattr(EvaluationState, "add_run_attack", note)
    images, labels = digits()
    library = AutoAttack(model, norm=norm, eps=epsilon, seed=0)
    library.square.n_queries = QUERIES
    library.run_standard_evaluation(images[:N], labels[:N], batch_size=BATCH)
    return flags


def left_after(outcomes: Outcomes) -> dict[str, Tensor]:
    assert outcomes.broken_by is not None
    left, flags = outcomes.clean_correct.clone(), {}
    for stage in outcomes.stages:
        left &= torch.tensor([name != stage.name for name in outcomes.broken_by])
        flags[stage.name] = left.clone()
    return flags


@pytest.mark.parametrize(("name", "norm", "epsilon"), CASES)
def test_the_same_examples_break_in_the_same_stages(
    name: str, norm: str, epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = network(name)
    expected = theirs(model, norm, epsilon, monkeypatch)
    found = left_after(ours(model, "compatible", norm, epsilon))
    assert expected.keys() <= found.keys(), "the library leaves stages out when nothing is left"
    for stage, flags in expected.items():
        assert torch.equal(found[stage], flags), stage
    assert 0 < int(expected["apgd_ce"].sum()) < 90


@pytest.mark.parametrize("backend", ["native", "pyautoattack"])
def test_other_backends_come_to_nearly_the_same(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = network("fgsm-trained")
    expected = theirs(model, "Linf", 0.12, monkeypatch)["square"]
    found = ours(model, backend, "Linf", 0.12).correct
    assert int((found != expected).sum()) <= 2


def test_native_results_do_not_depend_on_the_batch() -> None:
    model = network("fgsm-trained").double()
    try:
        runs = [ours(model, "native", "Linf", 0.12, batch_size=size, dtype="float64") for size in (7, 96)]
    finally:
        model.float()
    assert runs[0].broken_by == runs[1].broken_by
    assert torch.equal(runs[0].forward, runs[1].forward)


def test_every_stage_counts_its_passes() -> None:
    outcomes = ours(network("fgsm-trained"), "native", "Linf", 0.12)
    assert [stage.name for stage in outcomes.stages] == ["apgd_ce", "apgd_t", "fab_t", "square"]
    assert sum(stage.forward for stage in outcomes.stages) == int(outcomes.forward.sum())
    assert outcomes.stages[3].backward == 0
    assert outcomes.stages[0].n == int(outcomes.clean_correct.sum())


def test_version_rand_averages_gradients() -> None:
    attack = autoattack(epsilon=0.1, version="rand")
    assert [stage.name for stage in attack.stages] == ["apgd_ce", "apgd_dlr"]
    assert [stage.eot for stage in attack.stages] == [20, 20]  # type: ignore[attr-defined]


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
