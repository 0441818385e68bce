"""Only `assay` is installed, and no general names."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ["service", "workers", "models", "attacks"]
DISTRIBUTION = "assay-robustness"
TOP_LEVEL = {
    *PACKAGES,
    *("src", "supply", "docker", "tests", "docs", "benchmarks", ".ci", ".github"),
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "SECURITY.md", "Makefile", "pyproject.toml"),
    "mkdocs.yml",
    *("docker-compose.yml", "docker-compose.cpu.yml", "docker-compose.private.yml"),
    "docker-compose.staging.yml",
    *("docker-compose.worker.yml", ".env.example", ".gitignore", ".dockerignore"),
    *("requirements-service.txt", "requirements-worker.txt", "requirements-dev.txt"),
    *("requirements-cpu.txt", "requirements-reference.txt", "requirements-textattack.txt"),
}


@pytest.mark.parametrize("package", PACKAGES)
def test_package_resolves_inside_the_repository(package: str) -> None:
    spec = importlib.util.find_spec(f"assay.{package}")
    assert spec is not None
    assert spec.origin is not None
    assert Path(spec.origin).resolve() == ROOT / package / "__init__.py"


@pytest.mark.parametrize("package", ["assay", *PACKAGES, "tests", "benchmarks"])
def test_no_other_distribution_provides_the_package(package: str) -> None:
    providers = importlib.metadata.packages_distributions().get(package, [])
    assert set(providers) <= {DISTRIBUTION}


@pytest.mark.parametrize("package", PACKAGES)
def test_an_installation_exposes_no_general_name(package: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", f"import assay.{package}, {package}"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert f"No module named {package!r}" in run.stderr


def test_only_known_names_at_the_top_level() -> None:
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    run = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True)
    names = {line.partition("/")[0] for line in run.stdout.splitlines()}
    assert set(PACKAGES) <= names
    assert not names - TOP_LEVEL


def test_tests_and_docker_are_not_packages() -> None:
    assert not list((ROOT / "tests").rglob("__init__.py"))
    assert not list((ROOT / "docker").rglob("__init__.py"))
    assert not (ROOT / "workers" / "celery.py").exists()
