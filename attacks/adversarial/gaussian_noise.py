"""Gaussian noise: x + sigma * z with z standard normal in every value, then clipped.

Ford et al. 2019 relate the error in such noise to the distance of the nearest adversarial example. In the
`pixel` protocol with one draw it is ImageNet-C's gaussian noise (Hendrycks and Dietterich 2019: sigma .08,
.12, .18, .26, .38) without rounding to bytes. There is no ball.

    x' = clip(x + sigma z),    z ~ N(0, 1) in every value
"""

from __future__ import annotations

from typing import Annotated

from annotated_types import Interval
from torch import Tensor

from assay.attacks import parameters
from assay.attacks.adversarial.kernels.noise import Noise, draw
from assay.attacks.kernel import Attack, Setting, State
from assay.attacks.threat import Fraction

__all__ = ["gaussian_noise"]

ALSO = ("gaussian", "GN")
TASKS = ("classification",)
THREAT = {"knowledge": "noise"}
TABLE = "attack"
PAPER = "Ford et al. 2019, Adversarial Examples Are a Natural Consequence of Test Error in Noise"
PASSES = ("params.draws + 1", "0")


def gaussian_noise(
    *, sigma: Annotated[Fraction, "strength", Interval(ge=0, le=1000)] = 0.1, draws: parameters.Draws = 1
) -> Attack:
    """Random perturbations, normal and independent in every pixel and channel.

    Args:
        sigma: Standard deviation: in pixel units in `pixel`, in units of the normalised images in `paper`.
    """
    # Refuses NaN as well.
    if not 0 <= sigma < float("inf"):
        raise ValueError(f"sigma is {sigma}, it must be finite and at least 0")

    def perturbation(setting: Setting, state: State) -> Tensor:
        return sigma * draw(setting, state, "normal")

    return Noise("gaussian_noise", None, draws, perturbation)
