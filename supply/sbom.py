"""Makes a software bill of materials (CycloneDX 1.6, JSON) of each lock: `make sbom`. Needs no network.

    python supply/sbom.py FOLDER [LOCK ...]

A component is a package of the lock: name, version, package URL, and the sha256 of every file that the lock
admits for it (one for each platform). Licences are those that the installed packages state; packages that are
not installed, as those of another platform, have none. The same lock gives the same file.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LOCKS = (
    "requirements-service.txt",
    "requirements-worker.txt",
    "requirements-reference.txt",
    "requirements-textattack.txt",
    "requirements-cpu.txt",
    "requirements-dev.txt",
)
ENTRY = re.compile(r"([a-z0-9._-]+)(?:\[[a-z,]+\])?==([^\s;]+)(?:\s*;\s*([^\\\n]+))?")
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
MAX_LICENCE = 100  # longer ones are the licence's text


def bill(lock: Path) -> dict[str, Any]:
    """The bill of materials of a lock.

    Raises:
        ValueError: a line of the lock is no package with a version and a hash.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    root = f"pkg:pypi/{project['name']}@{project['version']}"
    components = [component(entry) for entry in entries(lock)]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": root,
                "name": project["name"],
                "version": project["version"],
                "purl": root,
                "licenses": [{"expression": project["license"]}],
            },
            "properties": [{"name": "assay:lock", "value": lock.name}],
        },
        "components": components,
        "dependencies": [{"ref": root, "dependsOn": [item["bom-ref"] for item in components]}],
    }


def entries(lock: Path) -> list[str]:
    """The packages of a lock, each with its hashes."""
    lines = [line for line in lock.read_text().splitlines() if line.strip() and not line.startswith("#")]
    return re.split(r"\n(?=\S)", "\n".join(lines)) if lines else []


def component(entry: str) -> dict[str, Any]:
    """A package of a lock as a component."""
    match, hashes = ENTRY.match(entry), HASH.findall(entry)
    if match is None or not hashes:
        raise ValueError(f"no package with a version and hashes: {entry[:100]!r}")
    name, version, marker = match.groups()
    purl = f"pkg:pypi/{re.sub(r'[-_.]+', '-', name)}@{version.replace('+', '%2B')}"
    found: dict[str, Any] = {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        "hashes": [{"alg": "SHA-256", "content": text} for text in hashes],
    }
    if licence := licence_of(name):
        found["licenses"] = [licence]
    if marker:
        found["properties"] = [{"name": "assay:marker", "value": marker.strip()}]
    return found


def licence_of(name: str) -> dict[str, Any] | None:
    """The licence that an installed package states, or None."""
    try:
        facts = importlib.metadata.metadata(name)
    except importlib.metadata.PackageNotFoundError:
        return None
    if expression := facts.get("License-Expression"):
        return {"expression": expression}
    stated = (facts.get("License") or "").strip()
    classifiers = [text for text in facts.get_all("Classifier") or [] if text.startswith("License ::")]
    if not stated or len(stated) > MAX_LICENCE or "\n" in stated or stated == "UNKNOWN":
        stated = classifiers[0].rpartition(" :: ")[2] if classifiers else ""
    return {"license": {"name": stated}} if stated else None


def main(arguments: list[str]) -> int:
    """Writes `FOLDER/LOCK.cdx.json` for each lock that has packages."""
    folder, locks = Path(arguments[0]), [Path(name) for name in arguments[1:]]
    folder.mkdir(parents=True, exist_ok=True)
    for lock in locks or [ROOT / name for name in LOCKS]:
        made = bill(lock)
        if not made["components"]:
            sys.stderr.write(f"{lock.name} has no packages: no bill\n")
            continue
        path = folder / f"{lock.stem}.cdx.json"
        path.write_text(json.dumps(made, indent=1, sort_keys=True) + "\n")
        sys.stdout.write(f"{path}: {len(made['components'])} packages\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
