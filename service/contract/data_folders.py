"""The folders that a data set, and the data sets that its parameters name, are read from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.contract.folders import check_folder
from service.contract.report import Loc, Report

if TYPE_CHECKING:
    from service.contract.catalog import Catalog
    from service.contract.components import Component


def check_folders(
    catalog: Catalog,
    component: Component,
    params: Mapping[str, Any],
    data_root: Path | None,
    report: Report,
    loc: Loc,
) -> None:
    """Report folders that cannot be right.

    Args:
        catalog: Has the data sets that parameters name.
        component: The data set.
        params: Its parameters with defaults; those that are missing are passed over.
        data_root: Where folders are looked up; None where it is not visible from here.
        report: Receives the remarks.
        loc: Where the data set stands in the body.
    """
    for name, schema in component.parameters["properties"].items():
        marked = any(branch.get("folder", False) for branch in schema.get("anyOf", [schema]))
        if not marked or not isinstance(params.get(name), str):
            continue
        must_exist = params.get("download") is not True
        problem = check_folder(params[name], data_root, must_exist=must_exist)
        if problem is not None:
            place = (*loc, "params", name)
            allowed, nearest = problem.allowed, problem.nearest
            report.add(place, problem.message, given=params[name], allowed=allowed, nearest=nearest)
    for name, kind, reference in component.references(params):
        nested = catalog.find(kind, reference["name"])
        check_folders(catalog, nested, reference["params"], data_root, report, (*loc, "params", name))
