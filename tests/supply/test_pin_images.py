"""`make pin-images`, against a registry of our own; no image is without a digest unless it is listed."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")


class Registry(BaseHTTPRequestHandler):
    """Speaks the registry protocol as Docker Hub does: a token first, then manifests."""

    lies: bool = False
    asked: list[str] = []  # noqa: RUF012 (of one test)

    def do_GET(self) -> None:
        Registry.asked.append(self.path)
        if self.path.startswith("/token?"):
            self.answer(200, json.dumps({"token": "t-" + self.path.partition("repository%3A")[2]}).encode())
        elif not self.headers.get("Authorization", "").startswith("Bearer t-"):
            name = self.path.removeprefix("/v2/").rpartition("/manifests/")[0]
            realm = f"http://127.0.0.1:{self.server.server_port}/token"  # type: ignore[attr-defined]
            challenge = f'Bearer realm="{realm}",service="registry",scope="repository:{name}:pull"'
            self.answer(401, b"{}", **{"WWW-Authenticate": challenge})
        elif "/missing/" in self.path or "oci.image.index" not in self.headers["Accept"]:
            self.answer(404, b"{}")
        else:
            body = manifest(self.path)
            stated = "0" * 64 if Registry.lies else hashlib.sha256(body).hexdigest()
            self.answer(200, body, **{"Docker-Content-Digest": f"sha256:{stated}"})

    def answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


def manifest(path: str) -> bytes:
    return json.dumps({"schemaVersion": 2, "of": path}).encode()


@pytest.fixture
def registry() -> Iterator[str]:
    Registry.lies, Registry.asked = False, []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files that name images."""
    (tmp_path / "docker").mkdir()
    (tmp_path / "supply").mkdir()
    for path in [*ROOT.glob("docker-compose*.yml"), *ROOT.glob("docker/*.Dockerfile")]:
        shutil.copy(path, tmp_path / path.relative_to(ROOT))
    return tmp_path


def pin(checkout: Path, registry: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "supply" / "pin_images.py", "--root", checkout, "--registry", registry]
    return subprocess.run(command, capture_output=True, text=True)


def named(checkout: Path) -> dict[str, list[str]]:
    """Images that are pulled, by file, found without the patterns of the script."""
    found: dict[str, list[str]] = {}
    for path in [*checkout.glob("docker-compose*.yml"), *checkout.glob("docker/*.Dockerfile")]:
        stages = set(re.findall(r" AS (\w+)$", path.read_text(), re.MULTILINE))
        for line in path.read_text().splitlines():
            words = line.replace("# syntax=", "# syntax= ").replace("ARG BASE=", "ARG BASE= ").split()
            if words and words[0] in ("FROM", "image:", "BASE:"):
                image = words[1]
            elif words[:2] in (["#", "syntax="], ["ARG", "BASE="]):
                image = words[2]
            else:
                continue
            if not image.startswith(("${", "assay-")) and image not in stages:
                found.setdefault(path.name, []).append(image)
    return found


def test_every_image_has_a_digest_or_is_listed_as_unresolved() -> None:
    images = {image for found in named(ROOT).values() for image in found}
    assert len(images) == 7
    lines = (ROOT / "supply" / "unresolved-images.txt").read_text().splitlines()
    listed = {line for line in lines if not line.startswith("#")}
    assert {image for image in images if not DIGEST.search(image)} == listed
    assert all(re.search(r":[^:@]*\d|bookworm", image) for image in images)


def test_digests_are_written_beside_the_tags(checkout: Path, registry: str) -> None:
    before = named(checkout)
    run = pin(checkout, registry)
    assert (run.returncode, run.stderr) == (0, "")
    after = named(checkout)
    for name, images in before.items():
        assert [image.partition("@")[0] for image in after[name]] == images
        assert all(DIGEST.search(image) for image in after[name])
    (postgres,) = {image for image in after["docker-compose.yml"] if image.startswith("postgres")}
    body = manifest("/v2/library/postgres/manifests/17-bookworm")
    assert postgres == f"postgres:17-bookworm@sha256:{hashlib.sha256(body).hexdigest()}"
    assert "/v2/astral-sh/uv/manifests/0.13.9" in Registry.asked
    assert (checkout / "supply" / "unresolved-images.txt").read_text().count("\n") == 1
    # Again: an older digest is replaced, and nothing else changes.
    compose = checkout / "docker-compose.yml"
    text = compose.read_text()
    compose.write_text(text.replace(postgres[-64:], "1" * 64))
    assert pin(checkout, registry).returncode == 0
    assert compose.read_text() == text
    original = (ROOT / "docker-compose.yml").read_text()
    assert re.sub(r"@sha256:[0-9a-f]{64}", "", text) == re.sub(r"@sha256:[0-9a-f]{64}", "", original)


def test_a_digest_that_is_not_the_manifests_is_not_taken(checkout: Path, registry: str) -> None:
    Registry.lies = True
    before = named(checkout)
    run = pin(checkout, registry)
    assert run.returncode == 1
    assert "the registry states sha256:0000" in run.stderr
    assert named(checkout) == before


def test_without_a_registry_nothing_is_made_up(checkout: Path) -> None:
    before = named(checkout)
    run = pin(checkout, "http://127.0.0.1:9")
    assert run.returncode == 1
    assert run.stderr.count("no digest: ") == 7
    assert named(checkout) == before
    listed = (checkout / "supply" / "unresolved-images.txt").read_text().splitlines()[1:]
    assert set(listed) == {image for found in before.values() for image in found}
