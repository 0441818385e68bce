"""The reference of the errors, from their classes."""

from __future__ import annotations

import inspect

from assay.service.client import ERRORS
from assay.service.contract.errors import AssayError
from supply.site.markdown import cell, code, table


def page() -> str:
    """Every type of an error answer, with its status and its class in Python."""
    classes = sorted(ERRORS.values(), key=lambda one: (one.status, one.type))
    rows = [[str(one.status), code(one.type), code(one.__name__), cell(_meaning(one))] for one in classes]
    return table(["status", "`error.type`", "class in Python", "when"], rows)


def _meaning(error: type[AssayError]) -> str:
    return (inspect.getdoc(error) or "").partition("\n\n")[0]
