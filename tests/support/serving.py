"""The application behind a real server on a port of 127.0.0.1: in a thread of the test, or in a process."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import uvicorn
from fastapi import FastAPI

from assay.service.api.event_feed import Feed
from assay.service.serving import Server
from tests.support.servers import free_port


class LiveServer:
    """Serves until `stop`; a second one may take its port over."""

    def __init__(self, app: FastAPI, port: int = 0, grace_seconds: int = 5) -> None:
        self.app = app
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen()
        self._listener = listener
        self.port: int = listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, timeout_graceful_shutdown=grace_seconds
        )
        self.server = Server(app, config)
        self._thread = threading.Thread(target=self.server.run, args=([listener],), daemon=True)
        self._thread.start()

    @property
    def feed(self) -> Feed:
        feed: Feed = self.app.state.feed
        return feed

    def stop(self) -> None:
        self.server.should_exit = True
        self._thread.join(30)
        assert not self._thread.is_alive(), "the server does not end"
        self._listener.close()


class ServedProcess:
    """The embedded service in a process of its own, without workers, for tests of its sockets and its size.

    Args:
        state: its state folder; a database in it is used.
        settings: ASSAY_ variables without their prefix.
    """

    def __init__(self, state: Path, **settings: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        own = {
            "STATE": str(state),
            "PORT": str(self.port),
            "WORKERS": "0",
            "LOG_LEVEL": "WARNING",
            **settings,
        }
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ASSAY_")}
        environment = kept | {f"ASSAY_{name}": value for name, value in own.items()}
        command = [sys.executable, "-m", "assay.workers.embedded"]
        self._process = subprocess.Popen(command, env=environment)
        self.pid = self._process.pid
        try:
            self._await_start()
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise

    def _await_start(self) -> None:
        deadline = time.monotonic() + 240
        while not self._answers():
            assert self._process.poll() is None, "the service ended"
            assert time.monotonic() < deadline, "the service does not start"
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/readyz", timeout=30, trust_env=False).status_code == 200
        except httpx.TransportError:
            return False

    def open_files(self, name: str) -> int:
        """How many descriptors of such files it has; `socket:` for sockets."""
        found = 0
        for link in Path(f"/proc/{self.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                found += name in str(link.readlink())
        return found

    @property
    def resident(self) -> int:
        """Bytes of memory that it has."""
        pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        """A connection from an address of this machine; it gives up after a while."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=30, source_address=(source, 0))

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(60)
