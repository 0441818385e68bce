"""The Dockerfiles: hadolint is silent, and .dockerignore admits the copied files."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.compose import ROOT, load

DOCKERFILES = sorted((ROOT / "docker").glob("*.Dockerfile"))
SCRIPTS = sorted((ROOT / "docker").glob("*.sh"))
COPY = re.compile(r"^COPY (?!--from)(.+) \S+$", re.MULTILINE)
FROM = re.compile(r"^FROM (\S+)(?: AS (\w+))?$", re.MULTILINE)


def name_of(path: Path) -> str:
    return path.name


def hadolint(text: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / "hadolint"
    return subprocess.run([program, "--no-color", "-"], input=text, capture_output=True, text=True)


def copied(dockerfile: Path) -> list[str]:
    return [name for names in COPY.findall(dockerfile.read_text()) for name in names.split()]


def test_there_is_one_for_each_image_that_is_built() -> None:
    built = {
        service["build"]["dockerfile"]
        for service in load("docker-compose.yml")["services"].values()
        if "build" in service
    }
    assert {f"docker/{path.name}" for path in DOCKERFILES} == built


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=name_of)
def test_hadolint_finds_nothing(dockerfile: Path) -> None:
    run = hadolint(dockerfile.read_text())
    assert (run.returncode, run.stdout) == (0, "")


def test_hadolint_finds_what_is_wrong() -> None:
    run = hadolint("FROM debian:latest\nRUN cd /tmp && sudo apt-get install curl\n")
    assert run.returncode != 0
    assert {"DL3007", "DL3004"} <= set(re.findall(r"DL\d+", run.stdout))


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=name_of)
def test_images_are_named_with_a_version(dockerfile: Path) -> None:
    text = dockerfile.read_text()
    arguments = dict(re.findall(r"^ARG (\w+)=(.*)$", text, re.MULTILINE))
    images = [image.replace("${BASE}", arguments["BASE"]) for image, _ in FROM.findall(text)]
    assert len(images) == 3, "uv, build, and the image itself"
    assert all(re.search(r":[^:]*\d", image) for image in images)
    assert [name for _, name in FROM.findall(text)] == ["uv", "build", ""]


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=name_of)
def test_what_is_copied_exists_and_is_not_ignored(dockerfile: Path) -> None:
    first, *rules = [
        line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"
    ]
    assert first == "*", "all that is not named is kept out: secrets, state, history"
    admitted = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    assert {"service", "docker/install.sh", "pyproject.toml"} <= set(copied(dockerfile))
    for name in copied(dockerfile):
        source = "docker/install.sh" if name.startswith("docker") else name
        assert (ROOT / source).exists()
        assert source in admitted or any(Path(source).match(rule) for rule in admitted)


def test_nothing_more_is_let_through_than_is_copied() -> None:
    rules = (ROOT / ".dockerignore").read_text().splitlines()
    admitted = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    used = {name for dockerfile in DOCKERFILES for name in copied(dockerfile)}
    assert {rule for rule in admitted if not any(Path(name).match(rule) for name in used)} == set()


@pytest.mark.parametrize("script", SCRIPTS, ids=name_of)
def test_scripts_are_plain_shell_that_stops_at_the_first_error(script: Path) -> None:
    text = script.read_text()
    assert text.startswith("#!/bin/sh\n")
    assert "\nset -eu\n" in text
    assert subprocess.run(["sh", "-n", script], capture_output=True).returncode == 0
