"""FAB, the untargeted fast adaptive boundary attack; its kernel is `kernels/fab.py`.

One backward pass per class in each iteration: prefer `fab_t` for many classes. The defaults are from
AutoAttack's `plus` version.

    x' = clip((1 - alpha) (x + eta d) + alpha (x0 + eta d0)),    alpha = min(|d| / (|d| + |d0|), alpha_max)
    then x0 + beta (x' - x0) where x' is misclassified
    d, d0 = the shortest ways from x and x0 to the linearised boundary between the label and the nearest class
"""

from __future__ import annotations

from typing import Annotated

from annotated_types import Interval

from assay.attacks import parameters
from assay.attacks.adversarial.kernels.fab import Boundary, FabAlphaMax, FabBeta, FabEta
from assay.attacks.adversarial.libraries.pyautoattack_square_fab import library_fab
from assay.attacks.kernel import Attack
from assay.attacks.threat import lp_ball

__all__ = ["fab"]

TASKS = ("classification",)
# The first restart begins at the image and draws nothing.
THREAT = {
    "knowledge": "white_box",
    "search": "iterative",
    "minimum_norm": True,
    "batch_draws": {"compatible": "params.restarts > 1", "pyautoattack": "params.restarts > 1"},
}
TABLE = "attack"
PAPER = "Croce and Hein 2020, Minimally distorted Adversarial Examples with a Fast Adaptive Boundary Attack"
# Two passes per iteration, one for the clean image; the library's function judges the images and its result
# in each run, and the kernel judges the result again. One backward pass per class in each iteration: the
# number of classes is not known here, so this is for the 1000 of ImageNet.
PASSES = ("params.restarts * (2 * params.iterations + 4) + 3", "params.restarts * params.iterations * 1000")
RULES = (parameters.LINF_RULE,)


def fab(
    *,
    epsilon: parameters.ProtocolRadius = 8 / 255,
    norm: parameters.StepNorm = "Linf",
    iterations: Annotated[int, Interval(ge=1, le=100_000)] = 100,
    restarts: Annotated[int, Interval(ge=1, le=10_000)] = 5,
    alpha_max: FabAlphaMax = 0.1,
    eta: FabEta = 1.05,
    beta: FabBeta = 0.9,
    backend: parameters.LibraryBackend = "native",
) -> Attack:
    """Short steps across the nearest boundary; a success has to be within epsilon.

    Args:
        iterations: Steps of each restart.
        restarts: How many runs; all but the first begin at a random point.
    """
    ball = lp_ball(norm, epsilon)
    kernel = Boundary("fab", ball, None, iterations, restarts, alpha_max, eta, beta, backend)
    return library_fab(kernel) if backend == "pyautoattack" else kernel
