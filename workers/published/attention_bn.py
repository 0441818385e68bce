"""Published parameters of Attention-BN and -SH: beta, factors of the heads and kernel sizes, by data set.

Source: Nguyen et al., "A primal-dual framework for transformers and neural networks", ICLR 2023: tables 12
(linear and sparse attention), 13 (softmax; UEA, and UCR's regression archive), 14 (Long Range Arena),
appendix J. Betas of linear and sparse attention outside the ten UEA sets of tables 5 and 10 are not
published; the factors are for all mechanisms.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

UEA = (
    "EthanolConcentration", "FaceDetection", "Handwriting", "Heartbeat", "JapaneseVowels", "PEMS-SF",
    "SelfRegulationSCP1", "SelfRegulationSCP2", "SpokenArabicDigits", "UWaveGestureLibrary",
)  # fmt: skip
UEA_EXTRA = (
    "ArticularyWordRecognition", "BasicMotions", "Epilepsy", "ERing", "FingerMovements", "Libras", "NATOPS",
    "RacketSports", "AtrialFibrillation", "Cricket", "StandWalkJump", "HandMovementDirection", "LSST",
    "DuckDuckGeese", "MotorImagery",
)  # fmt: skip
UCR = (
    "AppliancesEnergy", "BenzeneConcentration", "BeijingPM10Quality", "BeijingPM25Quality",
    "LiveFuelMoistureContent", "IEEEPPG",
)  # fmt: skip
LRA = ("listops", "text", "retrieval", "image", "pathfinder")
IMAGENET = "imagenet"


def _by_name(names: tuple[str, ...], *values: float) -> dict[str, float]:
    return dict(zip(names, values, strict=True))


# By family of the mechanism and data set.
BETAS_BN: Mapping[str, Mapping[str, float]] = {
    "attention": {
        **_by_name(UEA, 0.25, 0.6, 0.65, 0.55, 0.6, 0.25, 0.5, 1.2, 0.65, 0.1),
        **_by_name(UEA_EXTRA, 0.2, 0.1, 0.3, 0.1, 1.0, 0.3, 1.0, 1.0, 0.9, 0.2, 1.0, 0.5, 0.3, 0.6, 0.2),
        **_by_name(UCR, 0.4, 0.2, 0.1, 0.1, 0.1, 0.4),
        **_by_name(LRA, 0.5, 0.5, 1.0, 0.2, 0.2),
        IMAGENET: 1.0,
    },
    "linear": _by_name(UEA, 0.15, 0.6, 0.25, 0.6, 0.6, 0.35, 0.35, 0.75, 0.6, 0.65),
    "sparse": _by_name(UEA, 0.8, 0.6, 0.3, 0.4, 0.6, 0.5, 0.1, 0.5, 0.6, 0.9),
}
BETAS_BN_SH: Mapping[str, Mapping[str, float]] = {
    "attention": {
        **_by_name(UEA, 0.15, 0.6, 0.25, 0.85, 0.6, 0.35, 0.85, 0.9, 0.6, 0.2),
        **_by_name(UEA_EXTRA, 0.6, 0.1, 0.2, 0.9, 0.3, 0.7, 0.4, 0.4, 0.6, 1.0, 0.6, 0.5, 0.2, 0.3, 0.3),
        **_by_name(UCR, 0.2, 0.1, 0.5, 0.2, 0.3, 0.2),
        **_by_name(LRA, 0.2, 0.8, 1.0, 0.2, 0.4),
        IMAGENET: 1.0,
    },
    "linear": _by_name(UEA, 0.95, 0.6, 0.3, 0.15, 0.6, 0.65, 0.25, 0.15, 0.6, 0.55),
    "sparse": _by_name(UEA, 0.2, 0.6, 0.3, 0.5, 0.6, 0.6, 0.9, 0.3, 0.6, 0.3),
}
# By the ending of the mechanism's name.
BETAS = {"bn": BETAS_BN, "bn_sh": BETAS_BN_SH}
# For each head: 8 heads on time series, 2 on Long Range Arena, 4 in DeiT-tiny.
FACTORS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys((*UEA, *UEA_EXTRA, *UCR), (1, 1, 2, 2, 4, 4, 8, 8)),
    **dict.fromkeys(LRA, (1, 2)),
    IMAGENET: (1, 1, 2, 4),
}
# Mechanism, data sets, size.
KERNELS: Mapping[str, tuple[tuple[str, ...], int]] = {
    "conv1d_attention": (LRA, 5),
    "conv2d_attention": ((IMAGENET,), 2),
}


def published_parameters(mechanism: str, data: str) -> dict[str, Any] | None:
    """A mechanism's parameters on a data set (never sparse patterns); None where the paper states none."""
    if data not in FACTORS:
        return None
    if mechanism in KERNELS:
        where, size = KERNELS[mechanism]
        return {"size": size} if data in where else None
    family, _, form = mechanism.partition("_")
    if family not in (BETAS_BN if form else ("softmax", "linear", "sparse")) or form not in (
        "",
        "sh",
        *BETAS,
    ):
        return None
    parameters: dict[str, Any] = {}
    if form in BETAS:
        if data not in BETAS[form][family]:
            return None
        parameters |= {"form": "beta", "beta": BETAS[form][family][data]}
    if form.endswith("sh"):
        parameters["factors"] = list(FACTORS[data])
    return parameters
