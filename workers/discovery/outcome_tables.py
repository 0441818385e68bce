"""Finds outcome tables by `TABLE`: the name of Assay's table, or "module:object" (free of tensors)."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from typing import Any, get_args

from assay.service.contract.results import Unit
from assay.service.metrics.registry import TABLES
from assay.service.metrics.table import Column, OutcomeTable


def find_table(stated: Any) -> OutcomeTable:
    """The table, imported now; ValueError: missing, or no outcome table."""
    module, colon, name = str(stated).partition(":")
    if not colon:
        if module not in TABLES:
            raise ValueError(
                f"there is no outcome table {stated!r}; there are {', '.join(sorted(TABLES))}, and"
                ' "module:object" for one of your own'
            )
        return TABLES[module]
    try:
        found = getattr(importlib.import_module(module), name)
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"the outcome table {stated!r} cannot be imported: {reason}") from error
    if inspect.isclass(found) or not isinstance(found, OutcomeTable):
        raise ValueError(
            f"{stated!r} is no outcome table: it must be an object with name, columns, units, undefined,"
            " summarise and paired"
        )
    if problem := _problem(found):
        raise ValueError(f"the outcome table {stated!r}: {problem}")
    return found


def _problem(table: OutcomeTable) -> str | None:
    """A fault of a package's table, before anything is measured with it; or None."""
    columns, units = getattr(table, "columns", None), getattr(table, "units", None)
    if not isinstance(columns, tuple | list) or not all(isinstance(column, Column) for column in columns):
        return "columns must be a tuple of Column, as columns_of makes it"
    if "id" not in [column.name for column in columns]:
        return f"columns must have 'id'; it has {', '.join(column.name for column in columns) or 'none'}"
    if not isinstance(units, Mapping) or not units:
        return "units must map each metric to its unit"
    known = get_args(Unit)
    for metric, unit in units.items():
        if unit not in known:
            return f"the unit of {metric!r} is {unit!r}, allowed are {', '.join(known)}"
    if not isinstance(getattr(table, "undefined", None), Mapping):
        return "undefined must map metrics to the reason why they may have no value"
    if type(table).summarise is OutcomeTable.summarise:
        return "it defines no summarise"
    return None
