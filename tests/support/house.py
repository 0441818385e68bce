"""Measures of the product's sources: where features lie, what is stated twice, how much prose there is.

    python -m tests.support.house            # each value beside its ceiling and its goal
    python -m tests.support.house --lower    # writes today's values where they are below their ceilings

Files are the modules of the four packages without `__init__.py` and without migrations. A component is a
file with `__all__`.
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from assay.service.features import FEATURES, SHARED

ROOT = Path(__file__).resolve().parents[2]
CEILINGS = ROOT / "tests" / "architecture" / "house.json"
PACKAGES = ("service", "workers", "models", "attacks")
FULL_FOLDER = 25  # files
SLICES = 4  # folders of service with a file of the same name: a feature cut in slices
FULL_FILE = 380  # lines, of the 400 that a file may have
SMALL_FILE = 60  # lines
LONG_LIST = 4  # names of components
MEANINGS = 3  # of one type name
NAMED_KINDS = {"attack", "attention", "corruption", "data", "evaluation", "model", "recipe"}
# Names of components that are words of the service as well.
WORDS = {"clean", "top1"}
ODD_WORDS = r"of one|the one that|those of|that of|of which|there are none|there is none|anew|but for"
SECTION = re.compile(r"(?:Args|Raises|Returns|Attributes):")

Measure = Callable[["House"], float]


@dataclass(frozen=True)
class House:
    """The sources of a project folder: texts by path below it, parsed once."""

    files: dict[Path, str]
    tests: frozenset[str] = frozenset()
    kinds: dict[str, str] | None = None  # of components, by name
    tasks: frozenset[str] = frozenset()

    @cached_property
    def trees(self) -> dict[Path, ast.Module]:
        return {file: ast.parse(text) for file, text in self.files.items()}

    @cached_property
    def components(self) -> set[Path]:
        return {file for file, text in self.files.items() if "\n__all__" in text}

    @cached_property
    def importers(self) -> Counter[str]:
        """How many modules import a module."""
        known = {_module(file) for file in self.files}
        return Counter(
            imported
            for file, tree in self.trees.items()
            for imported in (_imports(tree) & known) - {_module(file)}
        )

    def helpers(self) -> dict[Path, ast.Module]:
        """The trees of files that are no components."""
        return {file: tree for file, tree in self.trees.items() if file not in self.components}

    def named(self, kinds: set[str]) -> set[str]:
        """Names of components of these kinds."""
        return {name for name, kind in (self.kinds or {}).items() if kind in kinds}


def house(root: Path = ROOT) -> House:
    """The house in a project folder."""
    files = {
        path.relative_to(root): path.read_text()
        for package in PACKAGES
        for path in sorted((root / package).rglob("*.py"))
        if path.name != "__init__.py" and "migrations" not in path.parts
    }
    entries = json.loads((root / "service" / "catalog" / "catalog.json").read_text())
    tests = root / "tests"
    return House(
        files,
        tests=frozenset(str(path.relative_to(tests)) for path in tests.rglob("test_*.py")),
        kinds={entry["name"]: entry["kind"] for entry in entries},
        tasks=frozenset(task for entry in entries for task in entry["tasks"]),
    )


def _module(file: Path) -> str:
    return ".".join(file.with_suffix("").parts)


def _imports(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name.removeprefix("assay.") for name in names}


def _texts(node: ast.AST) -> set[str]:
    return {
        child.value
        for child in ast.walk(node)
        if isinstance(child, ast.Constant) and isinstance(child.value, str)
    }


def _nodes(trees: dict[Path, ast.Module]) -> Iterator[ast.AST]:
    for tree in trees.values():
        yield from ast.walk(tree)


def full_folders(house: House) -> float:
    folders = Counter(file.parent for file in house.files)
    of_components = {file.parent for file in house.components}
    return sum(count > FULL_FOLDER for folder, count in folders.items() if folder not in of_components)


def sliced_features(house: House) -> float:
    """Names of files in several folders of the core: features have the same file names by rule."""
    folders = defaultdict(set)
    for file in house.files:
        if file.parts[0] == "service" and file.parts[1] not in (*FEATURES, *SHARED):
            folders[file.stem].add(file.parent)
    return sum(len(of_stem) >= SLICES for of_stem in folders.values())


def full_files(house: House) -> float:
    return sum(len(text.splitlines()) >= FULL_FILE for text in house.files.values())


def task_comparisons(house: House) -> float:
    trees = {file: tree for file, tree in house.helpers().items() if file.parts[:2] != ("workers", "tasks")}
    return sum(
        isinstance(node, ast.Compare) and bool(_texts(node) & house.tasks) and "task" in ast.unparse(node)
        for node in _nodes(trees)
    )


def component_lists(house: House) -> float:
    """Assignments of a module that hold several names of components (of five letters or more)."""
    names = {name for name in house.named(NAMED_KINDS) if len(name) > 4}
    return sum(
        isinstance(node, ast.Assign | ast.AnnAssign)
        and node.value is not None
        and len(_texts(node.value) & names) >= LONG_LIST
        for file, tree in house.helpers().items()
        if file.name != "openapi.py"
        for node in tree.body
    )


def ambiguous_types(house: House) -> float:
    """Classes and aliases of types with one name in several files."""
    files = defaultdict(set)
    for file, tree in house.trees.items():
        for node in tree.body:
            names = [node.name] if isinstance(node, ast.ClassDef) else []
            if isinstance(node, ast.Assign):
                names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            for name in names:
                if name[:1].isupper() and not name.isupper():
                    files[name].add(file)
    return sum(len(of_name) >= MEANINGS for of_name in files.values())


def files_that_name_components(house: House) -> float:
    names = house.named(NAMED_KINDS) - WORDS
    return sum(
        file.parts[0] == "service" and "example" not in file.name and bool(_texts(tree) & names)
        for file, tree in house.helpers().items()
    )


def small_helpers(house: House) -> float:
    return sum(
        house.importers[_module(file)] == 1 and len(house.files[file].splitlines()) < SMALL_FILE
        for file in house.helpers()
        if not (
            file.stem == "client" and file.parts[1] in (*FEATURES, *SHARED)
        )  # the file of a feature's calls, by rule
    )


def prose(house: House) -> float:
    """Words of comments and of texts in triple quotes, for 100 lines with code."""
    words = code = 0
    for text in house.files.values():
        lines = set()
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT or (
                token.type == tokenize.STRING and token.string.startswith('"""')
            ):
                words += len(token.string.split())
            elif token.type in (tokenize.NAME, tokenize.OP, tokenize.NUMBER):
                lines.add(token.start[0])
        code += len(lines)
    return round(100 * words / code)


def section_lines(house: House) -> float:
    """Lines below `Args:`, `Raises:`, `Returns:` or `Attributes:`, with the heading."""
    count = 0
    for node in _nodes(house.trees):
        if not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            continue
        inside = False
        for line in (ast.get_docstring(node) or "").splitlines():
            if line and not line.startswith(" "):
                inside = SECTION.match(line) is not None
            count += inside and bool(line.strip())
    return count


def star_tuples(house: House) -> float:
    return sum(
        isinstance(node, ast.Call)
        and any(isinstance(arg, ast.Starred) and isinstance(arg.value, ast.Tuple) for arg in node.args)
        for node in _nodes(house.trees)
    )


def odd_words(house: House) -> float:
    return sum(len(re.findall(rf"\b(?:{ODD_WORDS})\b", text)) for text in house.files.values())


def restated_parameters(house: House) -> float:
    return sum(
        text.count("only(")
        for file, text in house.files.items()
        if file.parts[:2] in (("service", "api"), ("service", "dashboard"))
    )


def untested_helpers(house: House) -> float:
    """Percent of helper modules without a test file of their name; types of the wire need none."""
    helpers = [
        file
        for file in house.helpers()
        if file.parts[:2] != ("service", "contract")
        and not (file.stem == "wire" and file.parts[1] in (*FEATURES, *SHARED))
    ]
    without = sum(str(file.parent / f"test_{file.name}") not in house.tests for file in helpers)
    return round(100 * without / len(helpers))


def lines(house: House) -> float:
    return sum(len(text.splitlines()) for text in house.files.values())


# What is measured, how, and the goal.
MEASURES: dict[str, tuple[Measure, float]] = {
    "machinery folders with more than 25 files": (full_folders, 0),
    "file names that stand in 4 folders of service or more": (sliced_features, 2),
    "files of 380 lines or more": (full_files, 0),
    "comparisons with a task's name outside components": (task_comparisons, 0),
    "lists of four component names or more outside components": (component_lists, 4),
    "type names with three meanings or more": (ambiguous_types, 5),
    "files of service that name a component": (files_that_name_components, 8),
    "helper modules under 60 lines with one importer": (small_helpers, 8),
    "words of prose per 100 lines of code": (prose, 230),
    "lines in sections of docstrings": (section_lines, 7000),
    "star-tuples in calls": (star_tuples, 0),
    "pronouns in place of nouns": (odd_words, 150),
    "query parameters stated again by only(...)": (restated_parameters, 4),
    "helper modules without a test file of their name, percent": (untested_helpers, 20),
    "product lines": (lines, 117_000),
}


def ceilings() -> dict[str, float]:
    """The values that a change may not exceed."""
    known: dict[str, float] = json.loads(CEILINGS.read_text())
    return known


if __name__ == "__main__":
    today, highest = house(), ceilings()
    values = {name: measure(today) for name, (measure, _) in MEASURES.items()}
    for name, (_, goal) in MEASURES.items():
        print(f"{values[name]:>8} (ceiling {highest[name]:>7}, goal {goal:>7})  {name}")
    if "--lower" in sys.argv:
        lower = {name: min(value, highest[name]) for name, value in values.items()}
        CEILINGS.write_text(json.dumps(lower, indent=2) + "\n")
