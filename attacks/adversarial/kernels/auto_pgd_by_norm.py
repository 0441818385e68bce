"""Auto-PGD by the norm of its ball and by its backend."""

from __future__ import annotations

from assay.attacks.adversarial.kernels.auto_pgd import AutoPGD, Backend
from assay.attacks.adversarial.kernels.auto_pgd_l1 import AutoPGDL1
from assay.attacks.adversarial.kernels.losses import Loss
from assay.attacks.adversarial.libraries.pyautoattack_apgd import LibraryAutoPGD
from assay.attacks.expectation import JUDGING, SINGLE, Expectation
from assay.attacks.kernel import Attack
from assay.attacks.threat import Ball

PAPER = (
    "Croce and Hein 2020, Reliable Evaluation of Adversarial Robustness with an Ensemble of Diverse "
    "Parameter-free Attacks"
)
# Maximum over backends: the native kernel takes `eot` passes fewer per run.
PASSES = (
    f"params.restarts * ((params.steps + 1 + 2 * (params.norm == 'L1')) * params.eot + 1) + 1 + {JUDGING}",
    "params.restarts * (params.steps + 1 + 2 * (params.norm == 'L1')) * params.eot",
)
STEPS_RULE = ("params.norm != 'L1' or params.steps >= 5", "in L1 steps must be at least 5")


def auto_pgd(
    name: str,
    loss: Loss,
    ball: Ball,
    *,
    steps: int,
    restarts: int,
    rho: float,
    backend: Backend,
    expectation: Expectation = SINGLE,
) -> Attack:
    """Returns Auto-PGD on a loss, native or the library's.

    `rho` is the share of a window's steps up to which rises of the loss are too few. `compatible` is the
    native kernel with a `LibraryStream` as its source of draws.
    """
    if steps < 1 or restarts < 1:
        raise ValueError(f"steps ({steps}) and restarts ({restarts}) must be at least 1")
    if not 0 <= rho <= 1:
        raise ValueError(f"rho is {rho}, it must be from 0 to 1")
    if backend != "native" and expectation.expected:
        raise ValueError(f"judgement expected needs backend native, not {backend}; take single_draw")
    if backend == "pyautoattack":
        return LibraryAutoPGD(name, ball, loss, steps, restarts, rho, expectation.passes)
    kernel = AutoPGDL1 if ball.norm == "L1" else AutoPGD
    return kernel(name, ball, loss, steps, restarts, rho, expectation, backend)
