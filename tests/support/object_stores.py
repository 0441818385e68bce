"""An S3 server of the test's own, and a network in front of it that fails, lies or is slow."""

from __future__ import annotations

import http.client
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

from assay.service.files.presigned import S3Place
from tests.support.servers import free_port

ACCESS_KEY, SECRET_KEY = "AKIATESTTESTTEST", "dGVzdHNlY3JldHRlc3RzZWNyZXR0ZXN0"


@contextmanager
def moto_server() -> Iterator[str]:
    """The address of a server without buckets."""
    port = free_port()
    program = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                assert httpx.get(f"{url}/moto-api/", timeout=30).status_code < 500
                break
            except httpx.TransportError:
                assert server.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.1)
        yield url
    finally:
        server.kill()
        server.wait()


def new_bucket(url: str) -> S3Place:
    """A prefix of a new bucket."""
    bucket = f"bucket-{uuid.uuid4().hex[:12]}"
    who = f"AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/20260101/us-east-1/s3/aws4_request"
    answer = httpx.put(f"{url}/{bucket}", headers={"Authorization": who}, timeout=120)
    assert answer.is_success, answer.text
    return S3Place(bucket, "some/prefix", url, "us-east-1", ACCESS_KEY, SECRET_KEY)


def settings_of(place: S3Place) -> dict[str, Any]:
    """The settings of a service or a worker with this store."""
    return {
        "files": f"s3://{place.bucket}/{place.prefix}",
        "s3_endpoint": place.endpoint,
        "s3_region": place.region,
        "s3_access_key_id": place.access_key_id,
        "s3_secret_access_key": place.secret_access_key,
    }


class Network:
    """A proxy to a server; `mode` says what it does with calls, `seconds` how long a slow call rests."""

    def __init__(self, url: str) -> None:
        self.mode = "fine"  # or down, slow, lying
        self.woken = threading.Event()
        self.calls: list[str] = []
        network, address = self, url.removeprefix("http://")

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle(self) -> None:
                with suppress(OSError):  # the client left
                    super().handle()

            def log_message(self, *_: Any) -> None:
                pass

            def _pass_on(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                network.calls.append(f"{self.command} {self.path}")
                if network.mode == "down":
                    self.close_connection = True
                    return
                if network.mode == "slow":
                    network.woken.wait(60)
                connection = http.client.HTTPConnection(address)
                connection.request(self.command, self.path, body, dict(self.headers.items()))
                answer = connection.getresponse()
                data = answer.read()
                if network.mode == "lying" and self.command == "GET" and "?" not in self.path:
                    data = bytes(255 - byte for byte in data)
                self.send_response_only(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                        self.send_header(name, value)
                size = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(data))
                self.send_header("Content-Length", size or "0")
                self.end_headers()
                self.wfile.write(b"" if self.command == "HEAD" else data)
                connection.close()

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass_on  # noqa: N815

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends it."""
        self.woken.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def local_path(tmp_path: Path, content: bytes) -> Path:
    """A local file with a content, under a new name."""
    path = tmp_path / uuid.uuid4().hex
    path.write_bytes(content)
    return path
