"""The constants that the formulas of corruptions name are there, one for each severity."""

from __future__ import annotations

import importlib
import re
from typing import get_args

import pytest

from assay.attacks.corruptions.imaging.constants import SIDES, Script
from assay.service.catalog.catalog import load
from assay.service.catalog.component import Component


@pytest.mark.sampled
@pytest.mark.parametrize("component", load().list("corruption"), ids=lambda component: component.name)
def test_a_formula_names_the_constants_of_its_severities(component: Component) -> None:
    module = importlib.import_module(component.target.partition(":")[0])
    (name,) = re.findall(r"= ([A-Z]+)\[constants\]\[severity - 1\]", component.formula or "")
    table = getattr(module, name)
    assert set(SIDES) <= set(table) <= set(get_args(Script))
    assert {len(constants) for constants in table.values()} == {5}
