"""The locks satisfy pyproject.toml, with hashes and without index URLs."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from assay.service.contract.extras import EXTRAS, OWN_ENVIRONMENT
from assay.workers.identity import PACKAGES

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Lock -> its extras, including the project's extras named by an extra.
LOCKS = {
    "requirements-service.txt": ["service"],
    "requirements-worker.txt": ["worker"],
    "requirements-reference.txt": ["reference"],
    "requirements-textattack.txt": ["textattack"],
    "requirements-dev.txt": ["dev"],
}
# Not for users of the command, or not installable beside the rest.
NOT_IN_ALL = {"all", "dev", "docs", "store", "textattack", "verified"}
# What TextAttack holds back: the other packages of its lock are the worker's.
BOTH = ("requirements-worker.txt", "requirements-textattack.txt")
HELD_BACK = {"fsspec", "huggingface-hub"}
ENTRY = re.compile(r"([a-z0-9._-]+)(?:\[[a-z,]+\])?==([^\s;]+)")


def entries(lock: str) -> list[str]:
    return re.split(r"\n(?=\S)", (ROOT / lock).read_text())


def asked_for(extras: list[str]) -> list[Requirement]:
    """The requirements of the core and of extras, with those of the extras that they name."""
    found, waiting, seen = list(map(Requirement, PROJECT["dependencies"])), list(extras), set[str]()
    while waiting:
        extra = waiting.pop()
        if extra in seen:
            continue
        seen.add(extra)
        for requirement in map(Requirement, PROJECT["optional-dependencies"][extra]):
            if requirement.name == PROJECT["name"]:
                waiting += requirement.extras
            else:
                found.append(requirement)
    return found


def test_the_core_is_the_client() -> None:
    assert {requirement.name for requirement in asked_for([])} == {"httpx", "pydantic"}


def test_all_is_every_extra_for_users() -> None:
    (own,) = map(Requirement, PROJECT["optional-dependencies"]["all"])
    assert own.extras == PROJECT["optional-dependencies"].keys() - NOT_IN_ALL


def test_the_worker_has_no_reference_library() -> None:
    references = {"cleverhans", "pyautoattack", "imagecorruptions-imaug", "numba"}
    locked = {ENTRY.match(entry)[1] for entry in entries("requirements-reference.txt")}
    assert references <= locked
    assert not references & {ENTRY.match(entry)[1] for entry in entries("requirements-worker.txt")}


def test_a_missing_package_is_named_with_its_extra() -> None:
    """EXTRAS has the modules of every distribution that an extra asks for."""
    # Those of an environment of their own are not installed here, and have modules of their names.
    by_module = importlib.metadata.packages_distributions() | {name: [name] for name in OWN_ENVIRONMENT}
    for extra, (_, modules) in EXTRAS.items():
        asked = {canonicalize_name(one.name) for one in asked_for([extra])}
        for module in modules:
            assert asked & set(map(canonicalize_name, by_module[module])), (extra, module)
    named = {name for name in PROJECT["optional-dependencies"] if name not in {"all", "dev", "docs", "store"}}
    assert set(EXTRAS) == named
    known = {canonicalize_name(o) for _, modules in EXTRAS.values() for m in modules for o in by_module[m]}
    beside = named - OWN_ENVIRONMENT
    every = {canonicalize_name(one.name) for extra in beside for one in asked_for([extra])}
    always = {"httpx", "pydantic", "annotated-types"}
    assert every - known == always | {"nvidia-ml-py"}, "without it a GPU's busy share is not known"


@pytest.mark.parametrize("lock", LOCKS)
def test_every_locked_package_has_a_version_and_hashes(lock: str) -> None:
    assert len(entries(lock)) > 10
    assert all(ENTRY.match(entry) for entry in entries(lock))
    assert all("--hash=sha256:" in entry for entry in entries(lock))


@pytest.mark.parametrize(("lock", "extras"), LOCKS.items())
def test_the_lock_holds_what_the_project_asks_for(lock: str, extras: list[str]) -> None:
    locked = dict(ENTRY.match(entry).groups() for entry in entries(lock))
    wrong = [
        str(requirement)
        for requirement in asked_for(extras)
        if locked.get(requirement.name) not in requirement.specifier
    ]
    assert not wrong, "run `make lock`"


def test_the_locks_agree() -> None:
    everything = {ENTRY.match(entry).groups() for entry in entries("requirements-dev.txt")}
    for lock in LOCKS.keys() - {"requirements-textattack.txt"}:
        assert {ENTRY.match(entry).groups() for entry in entries(lock)} <= everything


def test_textattack_changes_no_package_that_numbers_depend_on() -> None:
    """Its worker has the identity of the others, and the two may share a job that needs no TextAttack."""
    whole, ours = (dict(ENTRY.match(entry).groups() for entry in entries(lock)) for lock in BOTH)
    changed = {name for name in whole if name in ours and ours[name] != whole[name]}
    assert changed == HELD_BACK
    assert {name for name in PACKAGES if name in whole} <= ours.keys()
    assert int(ours["transformers"].split(".")[0]) < 5


def test_torch_comes_from_the_registry_in_any_recent_version() -> None:
    (torch,) = [r for r in asked_for(["worker"]) if r.name == "torch"]
    assert {specifier.operator for specifier in torch.specifier} == {">="}
    # A local version (2.13.0+cpu) comes from a file of one machine.
    assert "+" not in "".join(ENTRY.match(entry)[2] for entry in entries("requirements-dev.txt"))


def test_the_cpu_builds_have_hashes_of_the_locked_versions_or_are_not_resolved() -> None:
    """`make lock-cpu` fills the file where their index can be reached; until then it says so."""
    text = (ROOT / "requirements-cpu.txt").read_text()
    found = [entry for entry in re.split(r"\n(?=\S)", text) if not entry.startswith("#")]
    if not found:
        assert "Not resolved: `make lock-cpu`" in text
        return
    locked = dict(ENTRY.match(entry).groups() for entry in entries("requirements-worker.txt"))
    assert {ENTRY.match(entry).groups() for entry in found} == {
        (name, f"{locked[name]}+cpu") for name in ("torch", "torchvision")
    }
    assert all("--hash=sha256:" in entry for entry in found)


def test_no_uv_lock() -> None:
    # It records where packages came from; the hashed requirement files do not.
    assert not (ROOT / "uv.lock").exists()
