"""Attacks through compiled passes have the outcomes of the model's own; no success rests on compiled code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from assay.attacks.adversarial import pgd
from assay.attacks.randomness import Randomness
from assay.workers.evaluation.engine import captured, compiled
from assay.workers.evaluation.engine.protocols import attack_pixel
from tests.laws import test_segmentation_attack_laws as segmentation
from tests.laws import test_series_laws as series
from tests.laws.test_attack_laws import IDS, Network, make
from tests.laws.test_emulated_attacks import SEGMENTATION, SERIES, N, usual
from tests.support import networks

SLOTS = 6
COLUMNS = ("prediction", "correct", "correct5", "forward", "backward")
INDUCTOR = ("pgd", "apgd_ce", "square", "carlini_wagner", "fab")
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(autouse=True)
def at_once() -> Iterator[None]:
    """Compiles a pass when it comes for the second time: traced with its gradient, but without a compiler."""
    with patch.object(captured, "FIRST", 1), patch.object(compiled, "BACKEND", "aot_eager"):
        yield


@pytest.fixture(scope="module")
def network() -> Network:
    return Network().eval().double()


def outcomes(attack: Any, network: Network, dtype: Any = "float64", *, fast: bool) -> Any:
    images, labels = networks.digits()
    return attack_pixel(
        attack,
        network.double() if dtype == "float64" else network.float(),
        lambda rows: images[list(rows)],
        labels[:N],
        IDS[:N],
        randomness=Randomness(0, attack.name),
        batch_size=SLOTS,
        dtype=dtype,
        keep_adversarial=True,
        compiled=fast,
    )


def compare(plain: Any, fast: Any) -> None:
    for column in COLUMNS:
        assert torch.equal(getattr(fast, column), getattr(plain, column)), column
    torch.testing.assert_close(fast.adversarial, plain.adversarial, rtol=0, atol=1e-6)
    assert "compiled" not in plain.noted
    assert fast.noted.get("compiled", {}).get("refused") is None


@pytest.mark.sampled
@pytest.mark.parametrize(("module", "name", "params"), usual())
def test_an_attack_on_classifiers(
    module: ModuleType, name: str, params: dict[str, Any], network: Network
) -> None:
    attack = make(module, name, params)
    plain, fast = (outcomes(attack, network, fast=fast) for fast in (False, True))
    compare(plain, fast)
    if attack.backend == "native" and getattr(attack, "steps", 0) > 2:
        assert fast.noted["compiled"]["passes"] > 0


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_attacks_with_compiled_code(network: Network) -> None:
    """No shape of batch of FAB's four iterations comes often in every norm."""
    served = set()
    with patch.object(compiled, "BACKEND", "inductor"):
        for case in usual():
            module, name, params = case.values
            if name in INDUCTOR:
                attack = make(module, name, params)
                plain, fast = (outcomes(attack, network, fast=fast) for fast in (False, True))
                compare(plain, fast)
                if fast.noted.get("compiled", {}).get("passes"):
                    served.add(name)
    assert served == {*INDUCTOR}


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "params"), SEGMENTATION)
def test_an_attack_on_segmentation_models(name: str, params: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model = segmentation.Network().double().eval()
    images = torch.rand(5, 3, segmentation.SIDE, segmentation.SIDE)
    examples = images, model(images.double()).argmax(1).to(torch.uint8)
    with patch.object(segmentation, "IDS", segmentation.IDS[:5]):
        plain, fast = (
            segmentation.run(name, params | {"steps": 6}, model, examples, compiled=fast)
            for fast in (False, True)
        )
    assert fast.columns() == plain.columns()
    assert fast.noted["compiled"]["refused"] is None
    assert fast.noted["compiled"]["passes"] > 0
    torch.testing.assert_close(fast.adversarial, plain.adversarial, rtol=0, atol=1e-6)


@pytest.mark.sampled
@pytest.mark.parametrize(("attack", "norm"), SERIES)
def test_an_attack_on_series(attack: str, norm: str) -> None:
    whole = series.shard()
    plain, fast = (series.attacked(attack, norm, replace(whole, compiled=fast)) for fast in (False, True))
    for column in ("prediction", "correct", "forward", "backward"):
        assert torch.equal(getattr(fast, column), getattr(plain, column)), column
    torch.testing.assert_close(fast.adversarial, plain.adversarial, rtol=0, atol=1e-6)


@pytest.mark.parametrize("backend", [pytest.param("inductor", marks=pytest.mark.slow), "aot_eager"])
@pytest.mark.timeout(900)
def test_in_float32_outcomes_differ_by_rounding_alone(backend: str) -> None:
    network = Network().eval()
    attack = make(pgd, "pgd", {"epsilon": 0.1, "steps": 8, "norm": "Linf"})
    with patch.object(compiled, "BACKEND", backend):
        plain, fast = (outcomes(attack, network, "float32", fast=fast) for fast in (False, True))
    assert fast.noted["compiled"]["passes"] > 0
    # An example whose flag differs has two highest logits that rounding can exchange.
    for row in (fast.correct != plain.correct).nonzero().flatten().tolist():
        pair = torch.stack([fast.adversarial[row], plain.adversarial[row]])
        highest = network(pair).topk(2).values
        assert float((highest[:, 0] - highest[:, 1]).min()) < 1e-3


def test_clean_verdicts_and_successes_are_the_models_own(network: Network) -> None:
    """Compiled code that turns wrong after it was looked at invents no adversarial example."""
    looks = [0]

    def turning(model: Any) -> Any:
        def run(images: Tensor) -> Tensor:
            looks[0] += 1
            logits: Tensor = model(images)
            return logits if looks[0] <= 3 else logits.roll(1, 1)

        return run

    attack = make(pgd, "pgd", {"epsilon": 1e-3, "steps": 8, "norm": "Linf"})
    plain = outcomes(attack, network, fast=False)
    with patch.object(compiled, "_torch_compile", lambda: turning):
        fast = outcomes(attack, network, fast=True)
    assert looks[0] > 3
    assert fast.noted["unverified"] > 0, "the wrong logits claimed successes"
    assert torch.equal(fast.clean_correct, plain.clean_correct)
    broken = (~fast.correct).nonzero().flatten()
    assert (network(fast.adversarial[broken].double()).argmax(1) != networks.digits()[1][:N][broken]).all()
    assert torch.equal(fast.correct, plain.correct)
