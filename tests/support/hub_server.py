"""A small hub on localhost: repositories in memory, parts of files, a connection that breaks or hangs."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "c0ffee" + "0" * 34


@dataclass
class HubRepository:
    """Files by name at one commit; `refs` name it."""

    files: dict[str, bytes]
    license: str | None = "apache-2.0"
    commit: str = COMMIT
    refs: tuple[str, ...] = ("main",)
    gated: bool = False


@dataclass
class Hub:
    """What the server has, and what it does.

    Attributes:
        url: Where it listens.
        repositories: By ORG/NAME.
        break_after: Bytes of a file after which a connection is closed, each once.
        requests: (method, path, the Range header).
        hang: Set: an answer never comes.
    """

    url: str = ""
    repositories: dict[str, HubRepository] = field(default_factory=dict)
    break_after: list[int] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    hang: bool = False
    over: threading.Event = field(default_factory=threading.Event)


@contextmanager
def hub_server() -> Iterator[Hub]:
    """A running hub, stopped at the end."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.over.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        hub, path = self.hub, unquote(urlsplit(self.path).path)
        hub.requests.append((path, self.headers.get("Range", "")))
        if hub.hang:
            hub.over.wait(30)
            return
        if path.startswith("/api/models/"):
            self._model(path.removeprefix("/api/models/"))
        elif "/resolve/" in path:
            name, _, rest = path[1:].partition("/resolve/")
            repository = hub.repositories[name]
            if repository.gated and self.headers.get("Authorization", "") not in hub.tokens:
                self._error(403, "GatedRepo")
            else:
                self._file(repository.files[rest.partition("/")[2]])
        else:
            self._file(hub.repositories["plain/files"].files[path[1:]])

    def _model(self, path: str) -> None:
        name, _, revision = path.partition("/revision/")
        repository = self.hub.repositories.get(name)
        if repository is None:
            self._error(401, "RepoNotFound")
        elif revision not in (*repository.refs, repository.commit):
            self._error(404, "RevisionNotFound")
        else:
            siblings = [_sibling(file, content) for file, content in repository.files.items()]
            card = {"license": repository.license} if repository.license else {}
            gated = "auto" if repository.gated else False
            found = {"sha": repository.commit, "siblings": siblings, "cardData": card, "gated": gated}
            self._answer(json.dumps(found).encode())

    def _file(self, content: bytes) -> None:
        start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        if start >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        headers = {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"} if start else {}
        most = self.hub.break_after.pop(0) if self.hub.break_after else None
        self._answer(content[start:], 206 if start else 200, headers, most)

    def _answer(
        self,
        content: bytes,
        status: int = 200,
        headers: dict[str, str] | None = None,
        most: int | None = None,
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content[:most])
        if most is not None:
            self.close_connection = True

    def _error(self, status: int, code: str) -> None:
        self._answer(b"", status, {"X-Error-Code": code})

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # as in the library
        """Nothing."""


def _sibling(name: str, content: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {"rfilename": name, "size": len(content)}
    if name.endswith((".safetensors", ".bin")):
        return found | {"lfs": {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}}
    blob = hashlib.sha1(f"blob {len(content)}\0".encode() + content, usedforsecurity=False)
    return found | {"blobId": blob.hexdigest()}
