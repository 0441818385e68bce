"""Python packages that data needs on the workers, beside those that every worker has.

Data states its package as the fact `package`. The embedded service has the packages of its workers and can
look; a service whose workers run elsewhere cannot, and a dry run says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from assay.service.catalog.catalog import Catalog
from assay.service.catalog.component import Component
from assay.service.contract.problems import Loc, Problems
from assay.service.contract.results import Warning
from assay.service.contract.stored_specs import UserSpec

HasPackage = Callable[[str], bool]


def check_package(data: Component, has_package: HasPackage | None, problems: Problems, loc: Loc) -> None:
    """Report data whose package the workers lack.

    Args:
        data: The data set.
        has_package: Whether the workers have a package; None where unknown, which reports nothing.
        problems: Receives the error.
        loc: Place of the data in the body.
    """
    package = (data.facts or {}).get("package")
    if package is None or has_package is None or has_package(package):
        return
    message = f"{data.name!r} needs the Python package {package}, which this service's workers do not have"
    allowed = f"data that needs no package, or this one after {package} is installed beside the service"
    problems.add((*loc, "name"), message, given=data.name, allowed=allowed)


def package_warnings(catalog: Catalog, spec: UserSpec) -> list[dict[str, Any]]:
    """A warning for each package that the data of a valid job needs and the service cannot look for."""
    given = [spec["data"]]
    if spec["kind"] == "evaluate":
        given += [item["data"] for item in spec["evaluations"] if item["data"] is not None]
    found = {}
    for name in dict.fromkeys(data["name"] for data in given):
        package = (catalog.find("data", name).facts or {}).get("package")
        if package is not None:
            message = (
                f"the data set {name!r} needs the Python package {package} on the worker, which this service"
                " cannot look for: without it the job fails at its beginning"
            )
            found[name] = Warning(
                code="package_not_checked", message=message, evidence={"data": name, "package": package}
            )
    return [warning.model_dump() for warning in found.values()]
