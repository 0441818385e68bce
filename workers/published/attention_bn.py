"""Published parameters of Attention-BN and -SH: beta, factors of the heads and kernel sizes, by data set.

Source: Nguyen et al., "A primal-dual framework for transformers and neural networks", ICLR 2023: tables 12
(linear and sparse attention), 13 (softmax; UEA, and UCR's regression archive), 14 (Long Range Arena),
appendix J. Betas of linear and sparse attention outside the ten UEA sets of tables 5 and 10 are not
published; the factors are for all mechanisms.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

IMAGENET = "imagenet"
FAMILIES = ("attention", "linear", "sparse")

with Path(__file__).with_name("attention_bn.csv").open(newline="", encoding="utf-8") as _file:
    _ROWS = tuple(csv.DictReader(_file))


def _archive(name: str) -> tuple[str, ...]:
    return tuple(row["data"] for row in _ROWS if row["archive"] == name)


def _betas(column: str) -> dict[str, float]:
    return {row["data"]: float(row[column]) for row in _ROWS if row[column]}


UEA, UEA_EXTRA, UCR, LRA = map(_archive, ("uea", "uea_extra", "ucr", "lra"))
# By the ending of the mechanism's name, family of the mechanism, and data set.
BETAS: Mapping[str, Mapping[str, Mapping[str, float]]] = {
    form: {family: _betas(f"{form} {family}") for family in FAMILIES} for form in ("bn", "bn_sh")
}
# For each head: 8 heads on time series, 2 on Long Range Arena, 4 in DeiT-tiny.
FACTORS = {row["data"]: tuple(map(int, row["factors"].split())) for row in _ROWS}
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
    if family not in (FAMILIES if form else ("softmax", "linear", "sparse")) or form not in (
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
