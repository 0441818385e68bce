"""Finds outcome tables by `TABLE`: the name of one of Assay's, or "module:object" of another.

Merging imports the module of the table alone, not that of the evaluation: keep it free of tensors, since
results are merged in processes that hold none.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from assay.service.metrics.table import OutcomeTable
from assay.service.metrics.tables import TABLES


def find_table(stated: Any) -> OutcomeTable:
    """The table, imported now.

    Raises:
        ValueError: there is no such table, its module cannot be imported, or it is not an outcome table.
    """
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
        problem = f"{type(error).__name__}: {error}"
        raise ValueError(f"the outcome table {stated!r} cannot be imported: {problem}") from error
    if inspect.isclass(found) or not isinstance(found, OutcomeTable):
        raise ValueError(
            f"{stated!r} is no outcome table: it must be an object with name, columns, units, undefined,"
            " summarise and paired"
        )
    return found
