"""The HTTP server of both modes: uvicorn, which ends the event streams when it is told to stop."""

from __future__ import annotations

import socket

import uvicorn
from fastapi import FastAPI

from service.api.feed import Feed


class Server(uvicorn.Server):
    """Serves an application of `create_app`.

    Left alone, uvicorn waits for open answers until the graceful shutdown has timed out and then
    cuts them off; an event stream is open as long as its job runs.
    """

    def __init__(self, app: FastAPI, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._app = app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends the streams, whose clients come again, and then shuts down."""
        feed: Feed = self._app.state.feed
        feed.close()
        await super().shutdown(sockets)
