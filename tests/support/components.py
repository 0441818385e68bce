"""Components of other packages under test: those of the file that ASSAY_CATALOG names, if it is set."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from assay.service.catalog.catalog import load
from assay.workers.catalog import resolve


def foreign(kind: str) -> dict[str, Any]:
    """Map from name to function or class of other packages' components of a kind."""
    return {one.name: resolve(one) for one in load().list(kind) if one.package is not None}


def foreign_modules(kind: str) -> list[ModuleType]:
    """The modules that they are in."""
    components = [one for one in load().list(kind) if one.package is not None]
    names = dict.fromkeys(one.target.partition(":")[0] for one in components)
    return [importlib.import_module(name) for name in names]
