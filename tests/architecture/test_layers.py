"""Dependencies point from heavy to light: pyproject.toml's contracts, and imports with packages blocked."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

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


def test_import_contracts_hold() -> None:
    lint = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as lint; lint()"]
    run = subprocess.run([*lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "0 broken" in run.stdout


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
            "assay.workers.doctor",
        ],
    )
    assert run.returncode == 0, run.stderr


def test_a_blocked_import_is_noticed() -> None:
    run = import_without(["pydantic"], ["assay.service.contract.errors"])
    assert run.returncode != 0
    assert "pydantic is blocked" in run.stderr
