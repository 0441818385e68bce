"""Which Auto-PGD a norm and a backend get, and which values are refused."""

from __future__ import annotations

from typing import Any

import pytest

from assay.attacks.adversarial.kernels.auto_pgd import AutoPGD
from assay.attacks.adversarial.kernels.auto_pgd_by_norm import auto_pgd
from assay.attacks.adversarial.kernels.auto_pgd_l1 import AutoPGDL1
from assay.attacks.adversarial.kernels.losses import Untargeted
from assay.attacks.adversarial.libraries.pyautoattack_apgd import LibraryAutoPGD
from assay.attacks.expectation import Expectation
from assay.attacks.kernel import Attack
from assay.attacks.threat import lp_ball


def made(**parameters: Any) -> Attack:
    usual: dict[str, Any] = {"steps": 10, "restarts": 1, "rho": 0.75, "backend": "native"}
    norm = parameters.pop("norm", "Linf")
    return auto_pgd("apgd_ce", Untargeted("ce"), lp_ball(norm, 0.1), **(usual | parameters))


@pytest.mark.parametrize(
    ("norm", "backend", "kind"),
    [
        ("Linf", "native", AutoPGD),
        ("L2", "compatible", AutoPGD),
        ("L1", "native", AutoPGDL1),
        ("L1", "compatible", AutoPGDL1),
        ("Linf", "pyautoattack", LibraryAutoPGD),
        ("L1", "pyautoattack", LibraryAutoPGD),
    ],
)
def test_a_norm_and_a_backend_choose_the_kernel(norm: str, backend: str, kind: type) -> None:
    attack = made(norm=norm, backend=backend, steps=7, restarts=3, rho=0.5)
    assert type(attack) is kind
    assert (attack.name, attack.backend) == ("apgd_ce", backend)
    assert attack.ball == lp_ball(norm, 0.1)  # type: ignore[arg-type]
    assert (attack.steps, attack.restarts, attack.rho) == (7, 3, 0.5)  # type: ignore[attr-defined]


def test_the_library_takes_as_many_passes_as_the_kernel() -> None:
    once = Expectation(3, judgement="single_draw")
    native, library = (made(backend=backend, expectation=once) for backend in ("native", "pyautoattack"))
    assert native.expectation == once  # type: ignore[attr-defined]
    assert library.eot == 3  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"steps": 0}, r"steps \(0\) and restarts \(1\) must be at least 1"),
        ({"restarts": 0}, r"steps \(10\) and restarts \(0\) must be at least 1"),
        ({"rho": -0.1}, "rho is -0.1, it must be from 0 to 1"),
        ({"rho": float("nan")}, "rho is nan"),
        ({"norm": "L1", "steps": 4}, "steps is 4, in L1 it must be at least 5"),
        *(
            (
                {"backend": backend, "expectation": Expectation(2)},
                f"judgement expected needs backend native, not {backend}; take single_draw",
            )
            for backend in ("compatible", "pyautoattack")
        ),
    ],
)
def test_bad_values(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(**parameters)


@pytest.mark.parametrize("rho", [0.0, 1.0])
def test_shares_at_the_ends_are_allowed(rho: float) -> None:
    made(rho=rho, steps=1)
