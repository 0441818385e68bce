"""Published parameters of Attention-BN and -SH: sizes of the tables, some cells, what the mechanisms take."""

from __future__ import annotations

import pytest

from assay.models.layers.attention.lookup import find_attention
from assay.service.catalog.catalog import load
from assay.workers.published.attention_bn import (
    BETAS,
    FACTORS,
    IMAGENET,
    LRA,
    UCR,
    UEA,
    UEA_EXTRA,
    published_parameters,
)


def test_tables_have_a_value_for_every_data_set() -> None:
    assert [len(names) for names in (UEA, UEA_EXTRA, UCR, LRA)] == [10, 15, 6, 5]
    every = {*UEA, *UEA_EXTRA, *UCR, *LRA, IMAGENET}
    assert set(FACTORS) == every
    for families in BETAS.values():
        for family, betas in families.items():
            assert set(betas) == (every if family == "attention" else set(UEA))


@pytest.mark.parametrize(
    ("mechanism", "data", "expected"),
    [
        ("attention_bn", "SelfRegulationSCP2", 1.2),
        ("attention_bn", "LSST", 0.3),
        ("attention_bn", "IEEEPPG", 0.4),
        ("attention_bn_sh", "Heartbeat", 0.85),
        ("attention_bn_sh", "Cricket", 1.0),
        ("attention_bn_sh", "BeijingPM10Quality", 0.5),
        ("attention_bn_sh", "text", 0.8),
        ("attention_bn_sh", "pathfinder", 0.4),
        ("linear_bn", "UWaveGestureLibrary", 0.65),
        ("linear_bn_sh", "EthanolConcentration", 0.95),
        ("sparse_bn", "SelfRegulationSCP1", 0.1),
        ("sparse_bn_sh", "SelfRegulationSCP1", 0.9),
    ],
)
def test_cells(mechanism: str, data: str, expected: float) -> None:
    parameters = published_parameters(mechanism, data)
    assert parameters is not None
    assert parameters["beta"] == expected


def test_parameters_of_each_family() -> None:
    assert published_parameters("softmax", "text") == {}
    assert published_parameters("attention_sh", "Libras") == {"factors": [1, 1, 2, 2, 4, 4, 8, 8]}
    assert published_parameters("linear_sh", "image") == {"factors": [1, 2]}
    assert published_parameters("attention_bn_sh", IMAGENET) == {
        "form": "beta",
        "beta": 1.0,
        "factors": [1, 1, 2, 4],
    }
    assert published_parameters("conv1d_attention", "retrieval") == {"size": 5}
    assert published_parameters("conv2d_attention", IMAGENET) == {"size": 2}


@pytest.mark.parametrize(
    ("mechanism", "data"),
    [
        ("linear_bn", "Libras"),
        ("sparse_bn", "retrieval"),
        ("conv1d_attention", IMAGENET),
        ("primal", "text"),
        ("softmax_bn", "text"),
        ("softmax", "cifar10"),
    ],
)
def test_what_is_not_published(mechanism: str, data: str) -> None:
    assert published_parameters(mechanism, data) is None


@pytest.mark.parametrize("form", ["bn", "bn_sh", "sh"])
@pytest.mark.parametrize("family", ["attention", "linear", "sparse"])
def test_the_mechanisms_take_them(family: str, form: str) -> None:
    mechanism = f"{family}_{form}"
    known = load().find("attention", mechanism).parameters["properties"]
    for data in FACTORS:
        parameters = published_parameters(mechanism, data)
        if parameters is not None:
            assert set(parameters) <= set(known)
            heads = len(FACTORS[data])
            find_attention(mechanism)(4 * heads, heads, **parameters)
