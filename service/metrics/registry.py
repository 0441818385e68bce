"""Assay's outcome tables by name, found by listing `metrics/tables`; packages bring their own."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from types import ModuleType

from assay.service.metrics import tables
from assay.service.metrics.table import OutcomeTable


def tables_of(package: ModuleType) -> dict[str, OutcomeTable]:
    """An object of each class in the `__all__` of a package's modules; ValueError: two have one name."""
    found: dict[str, OutcomeTable] = {}
    for information in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        module = importlib.import_module(information.name)
        for table in (getattr(module, name)() for name in getattr(module, "__all__", ())):
            if table.name in found:
                raise ValueError(
                    f"two outcome tables are called {table.name!r}: {found[table.name]} and {table}"
                )
            found[table.name] = table
    return found


TABLES: Mapping[str, OutcomeTable] = tables_of(tables)
