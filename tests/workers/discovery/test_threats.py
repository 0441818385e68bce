"""Threats of attack modules: what is read, and what is refused with the allowed values."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.contract.threat import Knowledge, Threat
from assay.workers.discovery.threats import check_threat

SCHEMA = {"properties": {"steps": {}, "backend": {"enum": ["native", "library"]}}}
WHITE = {"knowledge": "white_box", "search": "iterative"}


def check(stated: object, schema: dict[str, Any] = SCHEMA, kind: str = "attack") -> Threat | None:
    return check_threat(kind, "package.probe", stated, schema)


def test_a_stated_threat_is_read_with_its_defaults() -> None:
    found = check({**WHITE, "norm": "L2", "mean_loss_in": ["library"]})
    assert found == Threat(
        knowledge=Knowledge.WHITE_BOX, search="iterative", norm="L2", mean_loss_in=["library"]
    )
    noise = check({"knowledge": "noise"})
    assert noise is not None
    assert (noise.search, noise.norm, noise.weak) == (None, "Linf", False)


def test_a_condition_may_name_the_parameters_of_the_attack() -> None:
    found = check({**WHITE, "batch_draws": {"library": "params.steps > 1"}})
    assert found is not None
    assert found.batch_draws == {"library": "params.steps > 1"}


@pytest.mark.parametrize("kind", ["recipe", "model", "evaluation"])
def test_only_attacks_state_a_threat(kind: str) -> None:
    assert check(None, kind=kind) is None
    with pytest.raises(ValueError, match=f"package.probe: THREAT is .*only attacks .*of kind {kind}"):
        check(WHITE, kind=kind)


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        (None, r"package\.probe states no THREAT; .*such as THREAT = .*transfer; search: single_step, "),
        ([WHITE], r"package\.probe states THREAT = \[\{'knowledge'"),
        ({**WHITE, "noorm": "L2"}, r"THREAT has \['noorm'\], allowed are knowledge, .*did you mean 'norm'\?"),
        ({**WHITE, 3: 4, "zzzzzzzz": 5}, r"THREAT has \['3', 'zzzzzzzz'\], allowed are [^;]*$"),
        ({"search": "iterative"}, r"THREAT\.knowledge: is missing \(knowledge: noise, "),
        ({**WHITE, "needs_classes": 1}, r"THREAT\.needs_classes: .*, not 1 "),
        ({**WHITE, "weak": 1}, r"THREAT\.weak: .*, not 1 "),
        ({"knowledge": "white_box"}, "noise states no search, every other attack one"),
        ({**WHITE, "mean_loss_in": ["torch"]}, r"the backends \['torch'\], the attack has native, library"),
        ({**WHITE, "batch_draws": {"torch": "True"}}, r"the backends \['torch'\]"),
        ({**WHITE, "batch_draws": {"library": "params.steps >"}}, r"batch_draws\.library: "),
        ({**WHITE, "batch_draws": {"library": "params.n > 1"}}, r"names \['params\.n'\], which are no param"),
        ({**WHITE, "batch_draws": {"library": "data.steps > 1"}}, r"names \['data\.steps'\]"),
    ],
)
def test_threats_that_are_refused(stated: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check(stated)


def test_an_attack_without_a_backend_names_none() -> None:
    with pytest.raises(ValueError, match="the attack has none"):
        check({**WHITE, "mean_loss_in": ["library"]}, {"properties": {}})
