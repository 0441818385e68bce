"""Taste, as tests: lengths of files and functions, `__init__.py` without code, nothing left for later."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from assay.service.features import FEATURES, SHARED
from tests.architecture.test_structure import graph, sources

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


def long_functions(tree: ast.Module) -> list[str]:
    functions = [node for node in ast.walk(tree) if isinstance(node, Function)]
    return [f"{node.name}: {code_lines(node)}" for node in functions if code_lines(node) > FUNCTION_LINES]


def test_the_packages_have_sources() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in SOURCES} == set(PACKAGES)


def over_budget(path: Path) -> list[str]:
    """What a file has too much of."""
    source = path.read_text()
    tree = ast.parse(source)
    found = [*long_functions(tree), *UNFINISHED.findall(source)]
    if (lines := len(source.splitlines())) > FILE_LINES:
        found.append(f"{lines} lines")
    if path.name == "__init__.py" and not all(
        isinstance(one, ast.ImportFrom) or is_text(one) for one in tree.body
    ):
        found.append("code")
    return found


def test_files_are_within_their_budgets() -> None:
    assert {name_of(path): found for path in SOURCES if (found := over_budget(path))} == {}


def test_a_long_function_is_noticed_and_a_long_docstring_is_not() -> None:
    body = "\n".join(["    pass"] * FUNCTION_LINES)
    docstring = '    """' + "\n" * (2 * FUNCTION_LINES) + '    """'
    assert long_functions(ast.parse(f"def long():\n{body}\n")) == [f"long: {FUNCTION_LINES + 1}"]
    assert not long_functions(ast.parse(f"def documented():\n{docstring}\n    pass\n"))


def test_no_file_names_a_registry_or_somebodys_folder() -> None:
    texts = [*ROOT.glob("*.txt"), *ROOT.glob("*.toml"), *ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    texts += [ROOT / "Makefile", ROOT / ".ci" / "run", ROOT / ".env.example", *SOURCES]
    texts += [*ROOT.glob("*.yml"), *(one for one in (ROOT / "docker").rglob("*") if one.is_file())]
    for path in texts:
        source = path.read_text()
        assert not SOMEBODYS_PATH.findall(source), path
        # The Makefile names the option that keeps such addresses out of the locks.
        assert not REGISTRY.findall(source.replace("--no-emit-index-url", "")), path


def small_modules() -> set[str]:
    """Modules of a few lines, not components, that one other module imports."""
    known = sources()
    importers: dict[str, list[str]] = {name: [] for name in known}
    for name, found in graph().items():
        for imported in found:
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
