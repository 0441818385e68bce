"""A terminal whose text a test reads."""

from __future__ import annotations

import contextlib
import os
import re
import sys
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

    def __enter__(self) -> None:
        self._before, sys.stdout = sys.stdout, self.file

    def __exit__(self, *_: object) -> None:
        sys.stdout = self._before

    def text(self) -> str:
        self.file.flush()
        found = b""
        with contextlib.suppress(BlockingIOError):
            while True:
                found += os.read(self._reading, 100_000)
        return found.decode().replace("\r\n", "\n")

    def close(self) -> None:
        self.file.close()
        os.close(self._reading)
