"""A terminal whose text a test reads."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from collections.abc import Callable
from typing import Any

Make = Callable[..., dict[str, Any]]


ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A pty of 100 columns, standard output in a `with` block: pytest sets it anew before each test."""

    def __init__(self) -> None:
        self._reading, writing = os.openpty()
        os.set_blocking(self._reading, False)
        self.file = os.fdopen(writing, "w")
        self._read, self._lock, self._closed = b"", threading.Lock(), threading.Event()
        # A pty holds a few kB: who writes more would wait for ever.
        self._reader = threading.Thread(target=self._drain, daemon=True)
        self._reader.start()

    def __enter__(self) -> None:
        self._before, sys.stdout = sys.stdout, self.file

    def __exit__(self, *_: object) -> None:
        sys.stdout = self._before

    def text(self) -> str:
        """What was written since the last call."""
        self.file.flush()
        self._take()
        with self._lock:
            found, self._read = self._read, b""
        return found.decode().replace("\r\n", "\n")

    def close(self) -> None:
        self._closed.set()
        self._reader.join()
        self.file.close()
        os.close(self._reading)

    def _drain(self) -> None:
        while not self._closed.wait(0.005):
            self._take()

    def _take(self) -> None:
        with self._lock, contextlib.suppress(BlockingIOError):
            while True:
                self._read += os.read(self._reading, 100_000)


def too_wide(line: str, text: str, columns: int) -> list[str]:
    """What a command wrote wider than the terminal, each behind the command; a single word is not broken."""
    return [
        f"{line}: {part}"
        for part in re.split(r"[\r\n]+", ESCAPES.sub("", text))
        if len(part.rstrip()) > columns and " " in part.strip()
    ]
