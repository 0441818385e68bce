"""Python packages that data and evaluations need on the workers, beside those that every worker has.

Data states its package as the fact `package`; an attack's backend is a library's name; a corruption that
reads files states the fact `files`, a folder below the data root and the package with them. The embedded
service can look; one with workers elsewhere cannot, and a dry run says so.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from assay.service.catalog.catalog import Catalog, Checked
from assay.service.catalog.component import Component
from assay.service.contract.extras import command_for
from assay.service.contract.problems import Loc, Problems
from assay.service.contract.results import Warning
from assay.service.contract.stored_specs import UserSpec, evaluations_in
from assay.service.contract.weights.pulled import PulledRecords
from assay.service.submission.requirements import files_of, library_of

HasPackage = Callable[[str], bool]
ListPulled = Callable[[], PulledRecords | None]  # Weights pulled where jobs run; None: not known yet.


def check_package(data: Component, has_package: HasPackage | None, problems: Problems, loc: Loc) -> None:
    """Report data if the workers lack its package."""
    package = (data.facts or {}).get("package")
    if package is None or has_package is None or has_package(package):
        return
    message = f"{data.name!r} needs the Python package {package}, which this service's workers do not have"
    allowed = f"data that needs no package, or this one after {package} is installed beside the service"
    problems.add((*loc, "name"), message, given=data.name, allowed=allowed)


def check_libraries(
    catalog: Catalog,
    checked: Checked,
    data_root: Path | None,
    has_package: HasPackage | None,
    problems: Problems,
    loc: Loc,
) -> None:
    """Report an evaluation if the workers lack its library, or files of its corruptions."""
    if has_package is None:
        return
    library = library_of(checked.params)
    if library is not None and not has_package(library):
        message = f"needs the Python package {library}, which this service's workers do not have"
        allowed = f"native, or this one after {command_for(library)}"
        problems.add((*loc, "params", "backend"), message, given=library, allowed=allowed)
    for name, files in files_of(catalog, checked.component, checked.params).items():
        if not has_package(files["package"]) and not is_folder(data_root, files["folder"]):
            message = f"{name!r} reads files that this service's workers do not have"
            allowed = (
                f"evaluations without {name!r}, or with its files in the folder {files['folder']!r} of the"
                f" data root, or after {command_for(files['package'])}"
            )
            problems.add((*loc, "params"), message, given=name, allowed=allowed)


def is_folder(root: Path | None, name: str) -> bool:
    """Whether there is such a folder below the data root."""
    return root is not None and (root / name).is_dir()


def package_warnings(catalog: Catalog, spec: UserSpec) -> list[dict[str, Any]]:
    """A warning for each package that a valid job needs and the service cannot look for."""
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
    libraries = {library_of(item["params"]): item["name"] for item in evaluations_in(spec)}
    for library, name in libraries.items():
        if library is not None:
            message = (
                f"the backend {library!r} of {name!r} needs the Python package {library} on the worker, which"
                " this service cannot look for: without it the job fails when it is planned;"
                f" {command_for(library)}"
            )
            evidence = {"evaluation": name, "package": library}
            found[library] = Warning(code="package_not_checked", message=message, evidence=evidence)
    return [warning.model_dump() for warning in found.values()]
