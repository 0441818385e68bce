"""House rules that no linter has: no circles, component folders hold components, one name means one thing."""

from __future__ import annotations

import ast
import json
from collections import defaultdict
from collections.abc import Mapping, Set
from functools import cache
from pathlib import Path

import pytest

from assay.service.catalog.catalog import CATALOG_FILE
from assay.workers.discovery import walk

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ["service", "workers", "models", "attacks"]
COMPONENT_FOLDERS = [package.removeprefix("assay.").replace(".", "/") for package in walk.PACKAGES.values()]
COMPONENT_FOLDERS += ["service/metrics/tables"]
# Users import it from here: `import assay.models.timm_names` tells timm of the models.
NO_COMPONENTS = {"models/timm_names.py"}
MAX_IMPORTS = 20

Graph = Mapping[str, Set[str]]


@cache
def sources() -> dict[str, Path]:
    """Module name to file."""
    files = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path
        for path in files
        if path.name != "__init__.py"
    }


@cache
def imports(path: Path) -> frozenset[str]:
    """Project modules imported by a file, at its top or in a function."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return frozenset(name.removeprefix("assay.") for name in found) & sources().keys()


def graph() -> Graph:
    """Module name to the project modules that it imports."""
    return {name: imports(path) for name, path in sources().items()}


def circles(graph: Graph) -> list[list[str]]:
    """The groups of modules that import each other, directly or around a corner."""

    def reachable(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            for following in graph[waiting.pop()] - seen:
                seen.add(following)
                waiting.append(following)
        return seen

    reach = {name: reachable(name) for name in graph}
    groups = {
        tuple(sorted(o for o in reach[name] if name in reach[o])) for name in graph if name in reach[name]
    }
    return [list(group) for group in sorted(groups)]


def test_the_imports_of_the_tree_are_seen() -> None:
    """The other rules would hold of nothing if this file did not know how modules are named."""
    assert sum(map(len, graph().values())) > len(sources())


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert circles(graph()) == []


def test_a_circle_is_noticed() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]


@pytest.mark.parametrize("folder", COMPONENT_FOLDERS)
def test_a_component_folder_holds_components_only(folder: str) -> None:
    files = {str(path.relative_to(ROOT)): path for path in sorted((ROOT / folder).glob("*.py"))}
    assert files
    others = [name for name, path in files.items() if "\n__all__" not in path.read_text()]
    assert set(others) - NO_COMPONENTS == {f"{folder}/__init__.py"}


def test_a_public_class_name_is_defined_once_in_a_package() -> None:
    where: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, path in sources().items():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where[name.partition(".")[0], node.name].append(name)
    assert {key: files for key, files in where.items() if len(files) > 1} == {}


def test_the_service_names_no_component() -> None:
    """What the service knows of an attack or a corruption comes from the catalog."""
    entries = json.loads(CATALOG_FILE.read_text(encoding="utf-8"))
    names = {entry["name"] for entry in entries if entry["kind"] in ("attack", "corruption")}
    assert {"pgd", "fog"} <= names
    found = {}
    for path in (ROOT / "service").rglob("*.py"):
        if "migrations" in path.parts:  # they say what the tables were
            continue
        texts = {
            node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)
        }
        if texts & names:
            found[str(path.relative_to(ROOT))] = sorted(map(str, texts & names))
    assert found == {}


def test_no_module_imports_too_much_of_the_house() -> None:
    counts = {name: len(imported) for name, imported in graph().items()}
    assert {name: count for name, count in counts.items() if count > MAX_IMPORTS} == {}
