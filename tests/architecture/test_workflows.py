"""GitHub workflows: valid by their schema, with least rights, and without tokens."""

from __future__ import annotations

import importlib.resources
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
# A tag can be moved to other code; the comment says which tag the commit had.
PINNED = re.compile(r"uses: [\w.-]+(?:/[\w.-]+)+@[0-9a-f]{40}  # v\d+(?:\.\d+)+")
EXAMPLE = ROOT / "docs" / "integrations.workflow.yml"


def loaded(path: Path) -> dict[str, Any]:
    # YAML 1.1 reads the key `on` as true.
    return {"on" if name is True else name: part for name, part in yaml.safe_load(path.read_text()).items()}


def steps(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_is_valid(path: Path) -> None:
    folder = importlib.resources.files("check_jsonschema") / "builtin_schemas" / "vendor"
    schema = json.loads((folder / "github-workflows.json").read_text())
    jsonschema.Draft7Validator(schema).validate(loaded(path))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_only_read(path: Path) -> None:
    workflow = loaded(path)
    assert workflow["permissions"] == {"contents": "read"}
    assert all("timeout-minutes" in job for job in workflow["jobs"].values())
    assert "secrets." not in path.read_text()


@pytest.mark.parametrize("path", [*WORKFLOWS, EXAMPLE], ids=lambda path: path.name)
def test_actions_are_pinned_by_digest(path: Path) -> None:
    used = re.findall(r"uses: .*", path.read_text())
    assert len(used) == sum("uses" in step for step in steps(loaded(path))) > 0
    assert [action for action in used if not PINNED.fullmatch(action)] == []


def test_a_release_builds_what_is_here_and_publishes_last() -> None:
    release = loaded(ROOT / ".github" / "workflows" / "release.yml")
    assert set(release["on"]) == {"push"}
    assert set(release["on"]["push"]) == {"tags"}
    for image in release["jobs"]["images"]["strategy"]["matrix"]["image"]:
        assert (ROOT / "docker" / f"{image}.Dockerfile").is_file()
    publish = release["jobs"]["publish"]
    assert set(publish["needs"]) == {"try", "images", "bills"}
    assert publish["permissions"]["id-token"] == "write"
    # What only the release can do needs a person's approval where the environment asks for it.
    assert publish["environment"] == "release"
    makes = re.findall(r"\bmake ([a-z-]+)", "\n".join(step.get("run", "") for step in steps(release)))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert makes
    assert set(makes) <= targets
