"""Dependencies point from heavy to light: pyproject.toml's contracts, and imports with packages blocked."""

from __future__ import annotations

import importlib.metadata
import pkgutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from assay.service import features

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Opens the service's database; imported by the subcommand that does.
OUTSIDE_THE_CORE = {"assay.service.tenants.keys_in_database"}

# The blocked packages fail to import, as on a machine that does not have them.
IMPORT_WITHOUT = """
import importlib, importlib.abc, sys

class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if any((name + ".").startswith(one + ".") for one in {blocked!r}):
            raise ImportError(f"{{name}} is blocked by the test")

sys.meta_path.insert(0, Blocked())
for name in {modules!r}:
    importlib.import_module(name)
print("imported", len({modules!r}))
"""

# The same, and every package that is not one of these.
IMPORT_WITH = IMPORT_WITHOUT.replace(
    'if any((name + ".").startswith(one + ".") for one in {blocked!r})',
    'if name.partition(".")[0] not in {{"assay", *sys.stdlib_module_names, *{allowed!r}}}',
)
HEAVY = ["torch", "torchvision", "timm", "numpy", "scipy", "sklearn", "matplotlib"]
HEAVY_SIDE = ["assay.workers", "assay.models", "assay.attacks"]
SERVER = ["fastapi", "starlette", "uvicorn", "celery", "redis", "sqlalchemy", "alembic", "psycopg"]


def modules_under(package: str) -> list[str]:
    """Every module under a package, by walking folders: nothing is imported."""
    folder = ROOT / "src" / package.replace(".", "/")
    assert folder.is_dir(), folder
    found = [package]
    for _, name, is_package in pkgutil.iter_modules([str(folder)]):
        found += modules_under(f"{package}.{name}") if is_package else [f"{package}.{name}"]
    return found


def import_without(blocked: list[str], modules: list[str]) -> subprocess.CompletedProcess[str]:
    program = IMPORT_WITHOUT.format(blocked=blocked, modules=modules)
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)


def modules_of(*distributions: str) -> set[str]:
    """Top-level modules of distributions and of all that they need without extras."""
    names, waiting = set[str](), list(distributions)
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name in names:
            continue
        names.add(name)
        needed = map(Requirement, importlib.metadata.requires(name) or [])
        waiting += [one.name for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})]
    by_module = importlib.metadata.packages_distributions().items()
    return {module for module, owners in by_module if names & set(map(canonicalize_name, owners))}


def test_import_contracts_hold() -> None:
    lint = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as lint; lint()"]
    run = subprocess.run([*lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "0 broken" in run.stdout


def test_client_and_command_line_import_with_the_packages_of_the_core_alone() -> None:
    """`pip install assay-robustness`; what a subcommand needs beside them, it imports when it runs."""
    core = [Requirement(line).name for line in PROJECT["dependencies"]]
    allowed = sorted(modules_of(*core) | {sysconfig._get_sysconfigdata_name()})
    modules = modules_under("assay.service.client")
    modules += modules_under("assay.service.cli")
    modules += [found.__name__ for name in ("cli", "client") for found in features.modules(name)]
    program = IMPORT_WITH.format(allowed=allowed, modules=modules)
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    outside = IMPORT_WITH.format(allowed=allowed, modules=sorted(OUTSIDE_THE_CORE))
    run = subprocess.run([sys.executable, "-c", outside], cwd=ROOT, capture_output=True, text=True)
    assert "is blocked by the test" in run.stderr, "it belongs to the core now"


def test_the_service_imports_without_torch_and_without_the_heavy_side() -> None:
    modules = [name for name in modules_under("assay.service") if "migrations" not in name]
    run = import_without(HEAVY + HEAVY_SIDE, modules)
    assert run.returncode == 0, run.stderr


def test_measuring_code_imports_without_the_service_packages() -> None:
    packages = [
        "assay.models",
        "assay.attacks",
        "assay.workers.evaluation",
        "assay.workers.training",
        "assay.workers.data",
        "assay.service.metrics",
    ]
    run = import_without(SERVER, [module for package in packages for module in modules_under(package)])
    assert run.returncode == 0, run.stderr


def test_the_supervisor_imports_without_torch() -> None:
    run = import_without(
        [*HEAVY, "assay.models", "assay.attacks"],
        [
            "assay.workers.supervision.supervisor",
            "assay.workers.supervision.reaper",
            "assay.workers.embedded",
            "assay.workers.worker",
            "assay.workers.doctor",
        ],
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize(
    ("module", "unused"),
    [
        ("assay.service.cli.main", ["httpx", "rich", "torch", "sqlalchemy"]),  # as for `assay --help`
        ("assay.workers.embedded", ["httpx", "redis", "celery", "rich"]),  # without Redis
    ],
)
def test_a_start_does_not_import_what_it_does_not_use(module: str, unused: list[str]) -> None:
    run = import_without(unused, [module])
    assert run.returncode == 0, run.stderr


def test_a_blocked_import_is_noticed() -> None:
    run = import_without(["pydantic"], ["assay.service.contract.errors"])
    assert run.returncode != 0
    assert "pydantic is blocked" in run.stderr
