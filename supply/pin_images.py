"""Writes the digest of every base image beside its tag: `make pin-images`, on a machine with network.

    python supply/pin_images.py [--root FOLDER] [--registry URL]

Asks each image's registry and rewrites `name:tag` to `name:tag@sha256:...` in the Dockerfiles and compose
files; an older digest is replaced. A digest is taken only if it is the hash of the manifest received.
Images whose registry does not answer stay as they are, are listed in `supply/unresolved-images.txt`, and make
the exit code 1.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

UNRESOLVED = "supply/unresolved-images.txt"
HEADER = "# Base images without a digest. `make pin-images` resolves them; it needs network.\n"
IMAGE = r"[a-z0-9][a-z0-9./_-]*:[A-Za-z0-9_][A-Za-z0-9_.-]*(?:@sha256:[0-9a-f]{64})?"
# Where a file names an image made elsewhere.
PLACES = {
    "docker/*.Dockerfile": (
        rf"^(# syntax=)({IMAGE})()$",
        rf"^(ARG BASE=)({IMAGE})()$",
        rf"^(FROM )({IMAGE})( AS \w+)?$",
    ),
    "docker-compose*.yml": (rf"^(\s+BASE: )({IMAGE})()$", rf"^(\s+image: )({IMAGE})()$"),
}
DOCKER_HUB = "registry-1.docker.io"
# Lists of several platforms first: one digest for all of them.
MANIFESTS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
TIMEOUT_SECONDS = 30
MAX_BYTES = 4 * 1024 * 1024


class NoDigest(Exception):
    """The registry gives no digest that can be believed; the message says why."""


def files(root: Path) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """The files that may name images, with the patterns of such places."""
    for pattern, places in PLACES.items():
        for path in sorted(root.glob(pattern)):
            yield path, places


def references(root: Path) -> set[str]:
    """Every image that is named, with its digest where it has one."""
    found = set()
    for path, places in files(root):
        for place in places:
            found |= {match[2] for match in re.finditer(place, path.read_text(), re.MULTILINE)}
    return found


def rewrite(root: Path, digest_of: Callable[[str], str | None]) -> None:
    """Puts digests beside the tags for which there is one."""

    def pinned(match: re.Match[str]) -> str:
        name = match[2].partition("@")[0]
        digest = digest_of(name)
        return match[0] if digest is None else f"{match[1]}{name}@{digest}{match[3] or ''}"

    for path, places in files(root):
        text = path.read_text()
        for place in places:
            text = re.sub(place, pinned, text, flags=re.MULTILINE)
        if text != path.read_text():
            path.write_text(text)


def digest(image: str, registry: str | None = None) -> str:
    """The digest of `name:tag` at its registry, or at another one.

    Raises:
        NoDigest: it is missing, or is not the hash of what was sent.
    """
    name, _, tag = image.rpartition(":")
    host, slash, path = name.partition("/")
    if not slash or not ("." in host or ":" in host):
        host, path = DOCKER_HUB, name if slash else f"library/{name}"
    url = f"{registry or f'https://{host}'}/v2/{path}/manifests/{tag}"
    try:
        body, stated = _manifest(url)
    except (OSError, ValueError) as error:
        raise NoDigest(f"{image}: {error}") from None
    found = f"sha256:{hashlib.sha256(body).hexdigest()}"
    if stated is not None and stated != found:
        raise NoDigest(f"{image}: the registry states {stated[:80]}, but its manifest has {found}")
    return found


def _manifest(url: str) -> tuple[bytes, str | None]:
    headers = {"Accept": ", ".join(MANIFESTS)}
    try:
        return _get(url, headers)
    except urllib.error.HTTPError as error:
        challenge = error.headers.get("WWW-Authenticate", "")
        if error.code != 401 or not challenge.startswith("Bearer "):
            raise
    wanted = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
    query = urllib.parse.urlencode({name: wanted[name] for name in ("service", "scope") if name in wanted})
    answer, _ = _get(f"{wanted.get('realm', '')}?{query}", {})
    token = json.loads(answer)
    return _get(url, headers | {"Authorization": f"Bearer {token.get('token') or token.get('access_token')}"})


def _get(url: str, headers: dict[str, str]) -> tuple[bytes, str | None]:
    if urllib.parse.urlsplit(url).scheme not in ("https", "http"):
        raise ValueError(f"{url[:80]!r} is no address of a registry")
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 (checked above)
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:  # noqa: S310
        return response.read(MAX_BYTES), response.headers.get("Docker-Content-Digest")


def main() -> int:
    """Resolves and rewrites; 1 if an image has no digest afterwards."""
    parser = argparse.ArgumentParser(description="Pin the base images by digest.")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument("--registry", help="ask this address for all images, such as a mirror's")
    options = parser.parse_args()
    found: dict[str, str] = {}
    for name in sorted({image.partition("@")[0] for image in references(options.root)}):
        if name.startswith("assay-"):
            continue  # made here
        try:
            found[name] = digest(name, options.registry)
            sys.stdout.write(f"{name}@{found[name]}\n")
        except NoDigest as error:
            sys.stderr.write(f"no digest: {error}\n")
    rewrite(options.root, found.get)
    missing = sorted(i for i in references(options.root) if "@" not in i and not i.startswith("assay-"))
    (options.root / UNRESOLVED).write_text(HEADER + "".join(f"{image}\n" for image in missing))
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
