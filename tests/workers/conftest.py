"""A store, on SQLite unless a test asks for both kinds of database, and a small job spec."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.databases import *  # noqa: F403 (fixtures)
from tests.support.databases import statements_once  # noqa: F401 (a fixture)

MODEL = {"image_size": 16, "patch_size": 8, "width": 12, "depth": 1, "heads": 2}


@pytest.fixture
def spec() -> dict[str, Any]:
    """An evaluation of a small transformer with random weights on digits, with every default filled in."""
    return {
        "kind": "evaluate",
        "name": "",
        "seed": 0,
        "tags": [],
        "priority": 5,
        "timeout_seconds": None,
        "protocol": "pixel",
        "limit": None,
        "model": {"name": "symvit", "params": dict(MODEL), "weights": None},
        "data": {"name": "digits", "params": {}},
        "evaluations": [
            {"name": "clean", "params": {}, "data": None},
            {"name": "pgd", "params": {"epsilon": 0.05, "steps": 3}, "data": None},
        ],
        "execution": {"device": "cpu", "dtype": "float32", "batch_size": 32},
    }
