"""Taste, as tests: lengths of files and functions, `__init__.py` without code, nothing left for later."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from assay.service.features import FEATURES, SHARED
from tests.architecture.test_structure import imports, sources

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ["service", "workers", "models", "attacks"]
FILE_LINES = 400
FUNCTION_LINES = 60
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|raise NotImplementedError)\b")
# A path, not a URL: these folders exist on one machine only.
SOMEBODYS_PATH = re.compile(r"""(?:^|[ "'=:(])/(?:work|farm|root|home)/""", re.MULTILINE)
REGISTRY = re.compile(
    r"--(?:extra-)?index[-]url|--find[-]links|https?://[^ )\"]*/[s]imple(?:/|\"|$)", re.MULTILINE
)

MIN_LINES = 40  # of a helper module that one other module uses

SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
Function = ast.FunctionDef | ast.AsyncFunctionDef


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def code_lines(function: Function) -> int:
    """Lines from the signature to the end, less the docstring: documentation is not length."""
    assert function.end_lineno is not None
    lines = function.end_lineno - function.lineno + 1
    if ast.get_docstring(function) is not None:
        docstring = function.body[0]
        assert docstring.end_lineno is not None
        lines -= docstring.end_lineno - docstring.lineno + 1
    return lines


def is_text(node: ast.stmt) -> bool:
    """A docstring or `__all__`: what an `__init__.py` that re-exports has beside imports."""
    if isinstance(node, ast.Assign):
        return [ast.unparse(target) for target in node.targets] == ["__all__"]
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def long_functions(source: str) -> list[str]:
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, Function)]
    return [f"{node.name}: {code_lines(node)}" for node in functions if code_lines(node) > FUNCTION_LINES]


def test_the_packages_have_sources() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in SOURCES} == set(PACKAGES)


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_file_is_within_its_budget(path: Path) -> None:
    source = path.read_text()
    assert len(source.splitlines()) <= FILE_LINES
    assert not long_functions(source)
    assert not UNFINISHED.findall(source)
    if path.name == "__init__.py":
        assert all(isinstance(node, ast.ImportFrom) or is_text(node) for node in ast.parse(source).body)


def test_a_long_function_is_noticed_and_a_long_docstring_is_not() -> None:
    body = "\n".join(["    pass"] * FUNCTION_LINES)
    docstring = '    """' + "\n" * (2 * FUNCTION_LINES) + '    """'
    assert long_functions(f"def long():\n{body}\n") == [f"long: {FUNCTION_LINES + 1}"]
    assert not long_functions(f"def documented():\n{docstring}\n    pass\n")


def test_no_file_names_a_registry_or_somebodys_folder() -> None:
    texts = [*ROOT.glob("*.txt"), *ROOT.glob("*.toml"), *ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    texts += [ROOT / "Makefile", ROOT / ".ci" / "run", ROOT / ".env.example", *SOURCES]
    texts += [*ROOT.glob("*.yml"), *(ROOT / "docker").iterdir()]
    for path in texts:
        source = path.read_text()
        assert not SOMEBODYS_PATH.findall(source), path
        # The Makefile names the option that keeps such addresses out of the locks.
        assert not REGISTRY.findall(source.replace("--no-emit-index-url", "")), path


def small_modules() -> set[str]:
    """Modules of a few lines, not components, that one other module imports."""
    known = sources()
    importers: dict[str, list[str]] = {name: [] for name in known}
    for name, path in known.items():
        for imported in imports(path, known):
            importers[imported].append(name)
    return {
        name_of(path)
        for name, path in known.items()
        if len(importers[name]) == 1
        and "\n__all__" not in (source := path.read_text())
        and len(source.splitlines()) < MIN_LINES
        and not (
            path.stem == "client" and path.parent.name in (*FEATURES, *SHARED)
        )  # the file of its calls, by rule
    }


def test_a_small_module_is_part_of_its_only_importer() -> None:
    assert small_modules() == set()
