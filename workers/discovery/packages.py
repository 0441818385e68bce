"""Components of installed packages, found through entry points.

    [project.entry-points."assay.components"]
    mypkg = "mypkg.assay"

names a package. In it, a module or a sub-package named after a kind (`attack.py`, `attention/`) has
components of that kind: names in `__all__`, as in Assay's own folders.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.service.catalog import extra_components
from assay.service.catalog.catalog import Catalog, load_with
from assay.service.catalog.component import Component, Package
from assay.service.contract.stored_specs import UserSpec, evaluations_in, parts_of
from assay.service.metrics.table import OutcomeTable
from assay.workers.discovery import walk
from assay.workers.discovery.outcome_tables import find_table

log = logging.getLogger(__name__)
GROUP = "assay.components"
FILE = "extra-components.json"
WALK_SECONDS = 300.0


class ComponentMissing(ValueError):
    """A catalog's component is missing here; the message has the remedy."""


@dataclass(frozen=True)
class PackageEntry:
    """One entry point."""

    package: Package
    module: str  # package with the components


def installed() -> list[PackageEntry]:
    """All entry points of the group, by package and module, not imported."""
    found = set()
    for point in importlib.metadata.entry_points(group=GROUP):
        assert point.dist is not None, "entry points that are looked up know their package"
        found.add(PackageEntry(Package(name=point.dist.name, version=point.dist.version), point.value))
    return sorted(found, key=lambda entry: (entry.package.name, entry.module))


def components_of(
    own: Sequence[Component], entries: Sequence[PackageEntry]
) -> tuple[list[Component], dict[str, str]]:
    """The components of packages, and the packages left out, with reasons."""
    catalog, left_out = Catalog(own), dict[str, str]()
    found: list[Component] = []
    for entry in entries:
        try:
            added = list(_components(entry))
            catalog = _joined(catalog, added)
        except (Exception, SystemExit) as error:  # a foreign module's own fault
            left_out[str(entry.package)] = _reason(entry, error)
        else:
            found += added
    return sorted(found, key=lambda component: (component.kind, component.name)), left_out


def resolve(component: Component) -> Any:
    """A foreign component's function or class, imported now.

    ComponentMissing: its package is missing here, or of another version; it differs from the catalog entry;
    or no entry point declares its target's package.
    """
    assert component.package is not None
    what, worker = _what(component), socket.gethostname()
    module, _, export = component.target.partition(":")
    owner = _owner(component, module)
    try:
        own = (component.name, component.target)
        found = [part for part in _of_module(owner, module) if (part.name, part.target) == own]
    except ValueError as error:
        raise ComponentMissing(f"{what}; on the worker {worker} {error}") from error
    if [_as_json(part) for part in found] != [_as_json(component)]:
        raise ComponentMissing(
            f"{what}; on the worker {worker} it is not as the catalog says: {_what_to_do(component.package)}"
        )
    return getattr(importlib.import_module(module), export)


def resolve_table(component: Component, table: str) -> OutcomeTable:
    """The outcome table of a package's component; imports only its module."""
    if ":" in table:
        _owner(component, table.partition(":")[0])
    try:
        return find_table(table)
    except ValueError as error:
        raise ComponentMissing(f"{_what(component)}; on the worker {socket.gethostname()} {error}") from error


def _what(component: Component) -> str:
    return f"the {component.kind} {component.name!r} is of the package {component.package}"


def _owner(component: Component, module: str) -> PackageEntry:
    what, worker, package = _what(component), socket.gethostname(), component.package
    assert package is not None
    here = [entry for entry in installed() if entry.package.name == package.name]
    if not here:
        raise ComponentMissing(f"{what}, which the worker {worker} does not have: {_what_to_do(package)}")
    if here[0].package != package:
        raise ComponentMissing(f"{what}; the worker {worker} has {here[0].package}: {_what_to_do(package)}")
    owners = [entry for entry in here if module.startswith(f"{entry.module}.")]
    if not owners:
        named = ", ".join(entry.module for entry in here)
        raise ComponentMissing(
            f"{what}, but {module!r} is in none of the packages that its entry points name ({named})"
        )
    return owners[0]


def packages_of(spec: UserSpec, catalog: Catalog) -> dict[str, str]:
    """Foreign packages with components in a spec, defaults included, with versions."""
    named = [(catalog.find(kind, part["name"]), part["params"]) for kind, part in parts_of(spec)]
    for item in evaluations_in(spec):
        named.append((catalog.find_evaluation(item["name"]), item["params"]))
        if item["data"] is not None:
            named.append((catalog.find("data", item["data"]["name"]), item["data"]["params"]))
    for component, params in named:  # grows while it is read
        named += [
            (catalog.find(kind, reference["name"]), reference["params"])
            for _, kind, reference in component.references(params)
        ]
        named += [(catalog.find(kind, name), {}) for kind, name in component.named(params)]
    return {one.package.name: one.package.version for one, _ in named if one.package is not None}


def _components(entry: PackageEntry) -> Iterator[Component]:
    modules = list(_modules(entry))
    if not modules:
        raise ValueError(
            f"{entry.module} has no components: there is no module or package with an `__all__` that is"
            f" called after a kind ({', '.join(walk.PACKAGES)})"
        )
    for _, name, _ in modules:
        yield from _of_module(entry, name)


def _modules(entry: PackageEntry) -> Iterator[tuple[str, str, list[str]]]:
    for kind in walk.PACKAGES:
        name = f"{entry.module}.{kind}"
        spec = importlib.util.find_spec(name)
        if spec is None:
            continue
        if spec.submodule_search_locations is not None:
            for module, names in walk.exports(name):
                yield kind, module, names
        elif spec.origin is not None and (names := walk.stated_all(name, Path(spec.origin))):
            yield kind, name, names


def _of_module(entry: PackageEntry, wanted: str) -> Iterator[Component]:
    for kind, name, names in _modules(entry):
        if name != wanted:
            continue
        try:
            module = importlib.import_module(name)
        except (Exception, SystemExit) as error:
            raise ValueError(f"{name} cannot be imported: {type(error).__name__}: {error}") from error
        for described in walk.components_of(kind, module, names):
            _check_tables(entry, described)
            yield described.model_copy(update={"package": entry.package})


def _check_tables(entry: PackageEntry, component: Component) -> None:
    stated = component.table or {}
    for table in [stated] if isinstance(stated, str) else stated.values():
        if ":" in table and not table.startswith(f"{entry.module}."):
            raise ValueError(
                f"{component.target}: TABLE: {table!r} is not in {entry.module}: a table must be in a module"
                " of the package that the entry point names"
            )


def _joined(catalog: Catalog, added: Sequence[Component]) -> Catalog:
    """The catalog extended one by one, which finds duplicates among the new."""
    for component in added:
        catalog.check_name(component)
        catalog = Catalog([*catalog.list(), component])
    walk.check_references(catalog)
    return catalog


def _reason(entry: PackageEntry, error: BaseException) -> str:
    said = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
    return f"{entry.module}: {said}"


def _as_json(component: Component) -> Any:
    return json.loads(json.dumps(walk.entry_of(component)))


def _what_to_do(package: Package) -> str:
    return f"install {package.name}=={package.version} there; or {extra_components.how_to_write('FILE')}"


def extend_catalog(state: Path) -> None:
    """Write a file for ASSAY_CATALOG, and set it, for components of packages, unless set."""
    if os.environ.get(extra_components.VARIABLE):
        return
    found = installed()
    if not found:
        return
    log.info("looking for the components of %s", ", ".join(str(entry.package) for entry in found))
    file = state / FILE
    problem = _written(file)
    if problem is not None:
        log.error("serving without the components of other packages: %s", problem)
        return
    try:
        content, _ = extra_components.read(file), load_with(str(file))
    except extra_components.BadPackageComponents as error:
        log.error("serving without the components of other packages: %s", error)
        return
    log.info("%d components of other packages, listed in %s", len(content.components), file)
    for package, reason in content.left_out.items():
        log.error("the components of %s are left out: %s", package, reason)
    os.environ[extra_components.VARIABLE] = str(file)  # For this process and its evaluators


def _written(file: Path) -> str | None:
    file.unlink(missing_ok=True)
    command = [sys.executable, "-P", "-m", "assay.workers.catalog", "--skip-broken", "--out", str(file)]
    try:
        done = subprocess.run(  # noqa: S603 (our own program)
            command,
            capture_output=True,
            text=True,
            timeout=WALK_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return f"looking for them took more than {WALK_SECONDS:.0f} s"
    if done.returncode == 0:
        return None
    said = " ".join((done.stderr or done.stdout).split())[-1000:]
    return f"looking for them ended with code {done.returncode}: {said}"
