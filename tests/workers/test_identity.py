"""Identity of a worker: its source, packages and catalog."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from assay.service.contract.fleet import release
from assay.workers import identity

ROOT = Path(__file__).parents[2]
MEASURING = ("models", "attacks", "workers/data", "workers/evaluation", "workers/training")


def imports(path: Path) -> Iterator[str]:
    """The modules that a file names in its imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Nothing is remembered from, or for, other tests."""
    forget()
    yield
    forget()


def forget() -> None:
    for found in (identity.code, identity.packages, identity.identity):
        found.cache_clear()


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small source tree in place of the project's."""
    monkeypatch.delenv("ASSAY_COMMIT", raising=False)
    monkeypatch.setattr(identity, "ROOT", tmp_path)
    rooms = (f"{folder}/some.py" for folder in release.CODE if folder.startswith("service/"))
    for name in ("models/vit.py", "attacks/pgd.py", "workers/plan.py", *rooms):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


def source_sha256() -> str:
    identity.code.cache_clear()
    return str(identity.code()["source_sha256"])


def test_the_hash_changes_with_any_file_that_computes(tree: Path) -> None:
    seen = {source_sha256()}
    (tree / "models" / "vit.py").write_text("other")
    seen.add(source_sha256())
    (tree / "attacks" / "pgd.py").rename(tree / "attacks" / "fgsm.py")
    seen.add(source_sha256())
    (tree / "workers" / "new.py").touch()
    seen.add(source_sha256())
    assert len(seen) == 4
    (tree / "service" / "catalog" / "class_lists.json").write_text("{}")
    seen.add(source_sha256())
    assert len(seen) == 5, "the classes of a data set decide which answers are right"
    (tree / "service" / "app.py").touch()
    (tree / "models" / "notes.txt").touch()
    assert source_sha256() in seen, "neither does the service compute numbers, nor a text"


@pytest.mark.parametrize("folder", release.CODE)
def test_the_hash_changes_with_a_file_of_every_folder(tree: Path, folder: str) -> None:
    before = source_sha256()
    (changed,) = (tree / folder).iterdir()
    changed.write_text("other")
    assert source_sha256() != before


@pytest.mark.costly
def test_the_hash_covers_all_code_that_computes() -> None:
    """Project modules imported by the measuring code; the store only keeps numbers."""
    sources = [path for folder in MEASURING for path in (ROOT / folder).rglob("*.py")]
    assert len(sources) > 100
    found = {name for path in sources for name in imports(path) if name.startswith("assay.")}
    imported = {name.removeprefix("assay.") for name in found}
    assert "service.contract.corruption_cells" in imported
    covered = tuple(f"{folder.replace('/', '.')}." for folder in release.CODE)
    # What only prints is left out: another width of a line is no other code.
    assert {name for name in imported if not f"{name}.".startswith(covered)} == {"service.fitted_text"}


def test_an_installed_package_does_not_take_the_commit_of_the_repository_around_it(tree: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tree.parent)], check=True)
    assert identity.code()["commit"] is None


def test_the_commit_of_a_checkout(tree: Path, tmp_path: Path) -> None:
    def git(*words: str) -> str:
        identity = ["-c", "user.name=x", "-c", "user.email=x@x"]
        answer = subprocess.run(
            ["git", "-C", str(tree), *identity, *words], capture_output=True, text=True, check=True
        )
        return answer.stdout.strip()

    git("init", "-q")
    git("add", "--all")
    git("commit", "-qm", "one")
    git("tag", "-am", "release", "v1")
    commit = git("rev-parse", "HEAD")
    assert identity.code()["commit"] == commit
    (tree / "models" / "vit.py").write_text("changed")
    identity.code.cache_clear()
    assert identity.code()["commit"] == f"{commit}-dirty"


def test_an_image_says_its_commit_itself(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_COMMIT", "c0ffee")
    assert identity.code()["commit"] == "c0ffee"
    monkeypatch.setenv("ASSAY_COMMIT", "")
    identity.code.cache_clear()
    assert identity.code()["commit"] is None


def test_the_version_of_torch_is_that_of_its_build_without_an_import() -> None:
    assert identity.packages()["torch"] == torch.__version__
    script = (
        "import sys; from assay.workers.identity import identity; identity(); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_digest_changes_with_the_source_a_package_and_the_catalog(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def digest() -> str:
        forget()
        return identity.identity()["digest"]

    seen = [digest()]
    assert digest() == seen[0]
    (tree / "models" / "vit.py").write_text("other")
    seen.append(digest())
    monkeypatch.setattr(identity, "_torch_version", lambda: "9.9+cu999")
    seen.append(digest())
    monkeypatch.setattr(identity, "load", lambda: SimpleNamespace(digest="other"))
    seen.append(digest())
    assert len(set(seen)) == len(seen)
