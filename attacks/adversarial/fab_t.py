"""FAB-T, the fast adaptive boundary attack on one wrong class after the other (kernel: `kernels/fab.py`).

The defaults are from AutoAttack's standard version: 9 targets, 100 iterations, one run without a random
start.

    x' = clip((1 - alpha) (x + eta d) + alpha (x0 + eta d0)),    alpha = min(|d| / (|d| + |d0|), alpha_max)
    then x0 + beta (x' - x0) where x' is misclassified
    d, d0 = the shortest ways from x and x0 to the linearised boundary between the label and the target
"""

from __future__ import annotations

from typing import Annotated

from annotated_types import Interval

from assay.attacks import parameters
from assay.attacks.adversarial import fab
from assay.attacks.adversarial.kernels.fab import Boundary, FabAlphaMax, FabBeta, FabEta
from assay.attacks.adversarial.libraries.pyautoattack_square_fab import library_fab
from assay.attacks.kernel import Attack
from assay.attacks.threat import lp_ball

__all__ = ["fab_t"]

TASKS = ("classification",)
# The first restart begins at the image and draws nothing.
THREAT = {
    "knowledge": "white_box",
    "search": "iterative",
    "minimum_norm": True,
    "targets": 9,
    "batch_draws": {"compatible": "params.restarts > 1", "pyautoattack": "params.restarts > 1"},
}
TABLE = "attack"
PAPER = fab.PAPER
# Two passes per iteration, one for the clean image; the library's function judges the images and its result
# in each run, and the kernel judges the result again.
PASSES = (
    "params.targets * params.restarts * (2 * params.iterations + 4) + 3",
    "params.targets * params.restarts * params.iterations",
)
RULES = (parameters.LINF_RULE,)


def fab_t(
    *,
    epsilon: parameters.ProtocolRadius = 8 / 255,
    norm: parameters.StepNorm = "Linf",
    iterations: Annotated[int, Interval(ge=1, le=100_000)] = 100,
    targets: Annotated[int, Interval(ge=1, le=100_000)] = 9,
    restarts: Annotated[int, Interval(ge=1, le=10_000)] = 1,
    alpha_max: FabAlphaMax = 0.1,
    eta: FabEta = 1.05,
    beta: FabBeta = 0.9,
    backend: parameters.LibraryBackend = "native",
) -> Attack:
    """Short steps across the boundary to each of several classes; a success has to be within epsilon.

    Args:
        iterations: Steps for each target and restart.
        targets: Classes to aim at, in the order of the logits of the unattacked image; at most all
            wrong ones.
        restarts: Runs for each target; all but the first begin at a random point.
    """
    ball = lp_ball(norm, epsilon)
    kernel = Boundary("fab_t", ball, targets, iterations, restarts, alpha_max, eta, beta, backend)
    return library_fab(kernel) if backend == "pyautoattack" else kernel
