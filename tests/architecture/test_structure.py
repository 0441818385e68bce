"""House rules that no linter has: no import circles, `TYPE_CHECKING` included."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ["service", "workers", "models", "attacks"]

Graph = dict[str, set[str]]


def sources() -> dict[str, Path]:
    """Module name to file."""
    files = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path
        for path in files
        if path.name != "__init__.py"
    }


def imports(path: Path, known: dict[str, Path]) -> set[str]:
    """The modules of ours that a file imports, at its top or in a function."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name.removeprefix("assay.") for name in found} & known.keys()


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
    known = sources()
    assert sum(len(imports(path, known)) for path in known.values()) > len(known)


def test_no_modules_import_each_other_in_a_circle() -> None:
    known = sources()
    assert circles({name: imports(path, known) for name, path in known.items()}) == []


def test_a_circle_is_noticed() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]
