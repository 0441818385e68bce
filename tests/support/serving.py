"""The application behind a real uvicorn server on a port of 127.0.0.1, in a thread of the test."""

from __future__ import annotations

import socket
import threading

import uvicorn
from fastapi import FastAPI

from assay.service.api.event_feed import Feed
from assay.service.serving import Server


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
