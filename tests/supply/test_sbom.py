"""`make sbom`: valid CycloneDX, and every package of the lock is in it with its hashes."""

from __future__ import annotations

import importlib.resources
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

ROOT = Path(__file__).resolve().parents[2]
LOCKS = [f"requirements-{name}.txt" for name in ("service", "worker", "reference", "dev")]


@cache
def validator() -> jsonschema_rs.Draft7Validator:
    """The schema of CycloneDX 1.6, with the two that it refers to."""
    folder = importlib.resources.files("cyclonedx") / "schema" / "_res"

    def read(name: str) -> Any:
        return json.loads((folder / f"{name}.SNAPSHOT.schema.json").read_text())

    others = {f"http://cyclonedx.org/schema/{name}": read(name) for name in ("spdx", "jsf-0.82")}
    resources = {
        f"{address}{suffix}": content
        for address, content in others.items()
        for suffix in (".schema.json", ".SNAPSHOT.schema.json")
    }
    registry = jsonschema_rs.Registry([*resources.items()], draft=jsonschema_rs.Draft7)
    return jsonschema_rs.Draft7Validator(read("bom-1.6"), registry=registry)


def make(folder: Path, *locks: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "supply" / "sbom.py", folder, *locks]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture(scope="module")
def bills(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("sbom")
    assert make(folder, *(ROOT / lock for lock in LOCKS)).returncode == 0
    return {lock: json.loads((folder / lock.replace(".txt", ".cdx.json")).read_text()) for lock in LOCKS}


@pytest.mark.parametrize("lock", LOCKS)
def test_it_follows_the_schema(bills: dict[str, Any], lock: str) -> None:
    assert [error.message for error in validator().iter_errors(bills[lock])] == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("hashes", 0, "alg"), "SHA-257"),
        (("type",), "thing"),
        (("hashes", 0, "content"), "xyz"),
        (("more",), 1),
    ],
)
def test_the_schema_notices_what_is_wrong(bills: dict[str, Any], path: tuple[Any, ...], value: Any) -> None:
    bill = json.loads(json.dumps(bills[LOCKS[0]]))
    place = bill["components"][0]
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    assert not validator().is_valid(bill)


@pytest.mark.parametrize("lock", LOCKS)
def test_every_package_of_the_lock_is_in_it(bills: dict[str, Any], lock: str) -> None:
    text = (ROOT / lock).read_text()
    packages = set(re.findall(r"^([a-z0-9._-]+)(?:\[[a-z,]+\])?==([^\s;]+)", text, re.MULTILINE))
    components = bills[lock]["components"]
    assert {(item["name"], item["version"]) for item in components} == packages
    assert len(components) == len({item["bom-ref"] for item in components})
    hashes = [entry["content"] for item in components for entry in item["hashes"]]
    assert sorted(hashes) == sorted(re.findall(r"sha256:([0-9a-f]{64})", text))
    (root,) = bills[lock]["dependencies"]
    assert set(root["dependsOn"]) == {item["purl"] for item in components}


def test_packages_have_the_licences_that_they_state(bills: dict[str, Any]) -> None:
    components = {item["name"]: item for item in bills["requirements-service.txt"]["components"]}
    stated = [name for name, item in components.items() if "licenses" in item]
    assert len(stated) >= 0.9 * len(components)
    assert "MIT" in json.dumps(components["fastapi"]["licenses"])


def test_the_same_lock_gives_the_same_file(tmp_path: Path, bills: dict[str, Any]) -> None:
    assert make(tmp_path, ROOT / LOCKS[0]).returncode == 0
    assert json.loads((tmp_path / "requirements-service.cdx.json").read_text()) == bills[LOCKS[0]]


def test_a_package_without_a_hash_makes_no_bill(tmp_path: Path) -> None:
    (tmp_path / "lock.txt").write_text("httpx==1.0\n")
    run = make(tmp_path, tmp_path / "lock.txt")
    assert run.returncode != 0
    assert "no package with a version and hashes: 'httpx==1.0'" in run.stderr


@pytest.mark.costly
def test_the_look_up_of_vulnerabilities_reads_the_locks(tmp_path: Path) -> None:
    """All but the look-up itself, which needs a database that tests do not reach."""
    makefile = (ROOT / "Makefile").read_text()
    (options,) = re.findall(r"python -m pip_audit (.*) --requirement \$\$lock", makefile)
    for lock in LOCKS:
        assert lock in makefile.partition("vulnerabilities: ")[2]
    command = [sys.executable, "-m", "pip_audit", *options.split(), "--dry-run", "--cache-dir", str(tmp_path)]
    run = subprocess.run([*command, "-r", ROOT / LOCKS[0]], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert re.search(r"would have audited \d\d packages", run.stderr)
