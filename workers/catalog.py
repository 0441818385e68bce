"""The worker's side of the catalog: resolves names to code, and writes `service/catalog/catalog.json`.

    python -m assay.workers.catalog            # write
    python -m assay.workers.catalog --check    # exit 1 when it is stale
    python -m assay.workers.catalog --out FILE # write the components of installed packages, for ASSAY_CATALOG

Components are imported only when they are built, so that importing this module needs no torch.
"""

from __future__ import annotations

from assay.service.contract.extras import require_to_run

if __name__ == "__main__":
    require_to_run("assay.workers.catalog", "worker")

import argparse
import functools
import importlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from assay.service.catalog import extra_components
from assay.service.catalog.catalog import CATALOG_FILE, Catalog, load, load_with
from assay.service.catalog.component import Component
from assay.service.catalog.parameters import numbers
from assay.service.contract.errors import ErrorDetail
from assay.service.contract.problems import Problems, path_text
from assay.service.contract.stored_specs import ComponentReference, Params, UserSpec, evaluations_in, parts_of
from assay.service.metrics.table import OutcomeTable
from assay.service.submission.compatibility import known_of_model
from assay.workers.discovery import packages
from assay.workers.discovery.outcome_tables import find_table
from assay.workers.discovery.walk import entry_of, to_json, walk

LOADED_FACTS = ("classes", "channels")  # Facts of a loaded data set for rules


class PassCount(NamedTuple):
    """Model passes per example, at most."""

    forward: float
    backward: float


def build(kind: str, name: str, params: Params, *, catalog: Catalog | None = None) -> Callable[..., Any]:
    """The component with its parameters bound, ready for the system's arguments.

    Kind "evaluation" has attacks too, as in `evaluations[].name`. Defaults are filled in, fractions become
    floats, and references to attention become factories `factory(dim, heads, *, prefix_tokens=1)`.
    """
    problems, catalog = Problems(), catalog or load()
    component = catalog.find_evaluation(name) if kind == "evaluation" else catalog.find(kind, name)
    reference = {"name": name, "params": dict(params)}
    checked = catalog.check_reference((component.kind,), reference, problems, ())
    _raise_if_any(f"{kind} {name!r}", problems.details)
    assert checked is not None
    return _bind(catalog, component, checked.params)


def task(name: str) -> Any:
    """The `Task` (`workers/tasks/classification.py`) of this name, or the default."""
    return _task(load(), name)


@functools.lru_cache(maxsize=64)
def _task(catalog: Catalog, name: str) -> Any:
    if name in catalog.names("task"):
        return build("task", name, {}, catalog=catalog)()
    return importlib.import_module("assay.workers.tasks.classification").Task()


def check_rules(spec: UserSpec, data: Any = None, *, catalog: Catalog | None = None) -> None:
    """Check a spec's rules by its data set, else the catalog; ValueError names every broken rule."""
    catalog, problems = catalog or load(), Problems()
    model = catalog.find("model", spec["model"]["name"])
    namespaces: dict[str, Mapping[str, object]] = {
        "model": known_of_model(catalog, model, spec["model"]["params"]),
        "part": catalog.known_of_parts(model, spec["model"]["params"]),
        "data": _facts_of(catalog, spec["data"], data),
        "job": {"protocol": spec["protocol"] if spec["kind"] == "evaluate" else None},
    }
    for kind, part in parts_of(spec):
        component = catalog.find(kind, part["name"])
        catalog.check_rules(component, part["params"], namespaces, problems, (kind, "params"))
    for index, item in enumerate(evaluations_in(spec)):
        known = (
            namespaces if item["data"] is None else {**namespaces, "data": _facts_of(catalog, item["data"])}
        )
        component = catalog.find_evaluation(item["name"])
        catalog.check_rules(component, item["params"], known, problems, ("evaluations", index, "params"))
    _raise_if_any("the spec breaks rules", problems.details)


def check_rules_of_evaluation(spec: UserSpec, index: int, data: Any) -> None:
    """Load and check rules of an evaluation with its own data; ValueError names every defect."""
    catalog, problems = load(), Problems()
    item = evaluations_in(spec)[index]
    assert item["data"] is not None, "rules about the job's data are checked with the job's"
    known = {"data": _facts_of(catalog, item["data"], data)}
    component = catalog.find_evaluation(item["name"])
    catalog.check_rules(component, item["params"], known, problems, ("evaluations", index, "params"))
    _raise_if_any("the spec breaks rules", problems.details)


def passes(name: str, params: Params, *, catalog: Catalog | None = None) -> PassCount:
    """Model passes per example of an evaluation or attack, by default 1. Raises NotFound."""
    component = (catalog or load()).find_evaluation(name)
    return PassCount(*(component.passes_with(params) or (1, 0)))


def repeats(name: str, params: Params, *, catalog: Catalog | None = None) -> int | None:
    """Repeats of an evaluation of the machine; None for one of examples. Raises NotFound."""
    return (catalog or load()).find_evaluation(name).repeats_with(params)


def resolve(component: Component) -> Any:
    """A catalog entry's function or class, imported now, with a preset's fixed arguments.

    Raises ComponentMissing: its package is missing here, or of another version.
    """
    if component.package is not None:
        target = packages.resolve(component)
    else:
        module, _, name = component.target.partition(":")
        target = getattr(importlib.import_module(module), name)
    return functools.partial(target, **component.fixed) if component.fixed else target


def outcome_table(component: Component, tasks: Sequence[str]) -> OutcomeTable:
    """The outcome table of an evaluation or attack on data for these tasks.

    Raises ComponentMissing: its package is missing here; ValueError: no table for these tasks.
    """
    table = component.table_for(tasks)
    if table is None:
        raise ValueError(f"{component.target} states no outcome table for {' or '.join(tasks)}")
    return find_table(table) if component.package is None else packages.resolve_table(component, table)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the catalog, or check that it is fresh; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m assay.workers.catalog", description=main.__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 when the catalog is stale"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the components of installed packages")
    parser.add_argument(
        "--skip-broken", action="store_true", help="with --out: note what is wrong with a package in the file"
    )
    options = parser.parse_args(arguments)
    if options.skip_broken and options.out is None:
        parser.error("--skip-broken is for --out")
    if options.out is not None:
        return _write_extras(options.out, skip_broken=options.skip_broken)
    try:
        components = walk()
    except ValueError as error:
        sys.stderr.write(f"catalog: {error}\n")
        return 1
    text = to_json(components)
    written = CATALOG_FILE.read_text(encoding="utf-8") if CATALOG_FILE.exists() else ""
    if options.check:
        if text != written:
            changed = ", ".join(stale_entries(text, written)) or "its form"
            sys.stderr.write(f"catalog: {CATALOG_FILE.name} is stale ({changed}): run `make catalog`\n")
        return int(text != written)
    if text != written:
        CATALOG_FILE.write_text(text, encoding="utf-8")
    sys.stdout.write(
        f"catalog: {len(components)} components{'' if text != written else ', nothing changed'}\n"
    )
    return 0


def _write_extras(path: Path, *, skip_broken: bool) -> int:
    # Assay's own come from the file: faster than importing.
    found, left_out = packages.components_of(load_with("").list(), packages.installed())
    for package, reason in left_out.items():
        sys.stderr.write(f"catalog: {package} is left out: {reason}\n")
    if left_out and not skip_broken:
        sys.stderr.write(f"catalog: {path} is not written; mend or uninstall these packages\n")
        return 1
    try:
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
            file.write(extra_components.text(list(map(entry_of, found)), left_out))
        Path(file.name).chmod(0o644)  # other users of the machine serve and work too
        os.replace(file.name, path)
    except OSError as error:
        sys.stderr.write(f"catalog: cannot write {path}: {error.strerror}\n")
        return 1
    names = ", ".join(dict.fromkeys(str(component.package) for component in found))
    sys.stdout.write(f"catalog: {len(found)} components of {names or 'no package'} in {path}\n")
    return 0


def stale_entries(fresh: str, written: str) -> list[str]:
    """The components that differ between two catalog texts, as "kind name"."""
    old, new = (
        {f"{e['kind']} {e['name']}": e for e in json.loads(text or "[]")} for text in (written, fresh)
    )
    return sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))


def _bind(catalog: Catalog, component: Component, params: Params) -> Callable[..., Any]:
    target, bound = resolve(component), numbers(component.parameters, params)
    for parameter, kind, reference in component.references(params):
        bound[parameter] = _bind(catalog, catalog.find(kind, reference["name"]), reference["params"])
    return functools.partial(target, **bound)


def _facts_of(catalog: Catalog, reference: ComponentReference, loaded: Any = None) -> dict[str, object]:
    known = catalog.find("data", reference["name"]).known(reference["params"])
    if loaded is not None:
        known |= {fact: getattr(loaded, fact) for fact in LOADED_FACTS}
        height, width = loaded.size or (None, None)
        if height is not None and height == width:
            known["size"] = height
    return known


def _raise_if_any(what: str, details: Sequence[ErrorDetail]) -> None:
    if details:
        problems = "; ".join(f"{path_text(detail.loc)}: {detail.message}" for detail in details)
        raise ValueError(f"{what}: {problems}")


if __name__ == "__main__":
    sys.exit(main())
