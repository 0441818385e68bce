"""Rendering of specs to SVG, PNG and PDF, by one process that stays warm, with a cache of files.

`render` starts the process (`renderer.py`) at first use, and after it crashed, took too long or was idle; a
failure does not harm the next rendering.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import importlib.metadata
import json
import os
import select
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from assay.service.plots.theme import Scheme, Vega, themed

Format = Literal["svg", "png", "pdf"]
MEDIA_TYPES: dict[Format, str] = {"svg": "image/svg+xml", "png": "image/png", "pdf": "application/pdf"}
COMMAND = (sys.executable, "-P", "-m", "assay.service.plots.renderer")
MAX_SECONDS = 60.0  # with the process's start and the wait for other plots
MAX_SPEC_BYTES = 16 * 1024**2
MAX_CACHED = 2000  # a fuller folder loses its oldest files
VERSION = "1"  # of the rendering; changed plots have changed specs
# Passed on to the process; the service's secrets are not.
VARIABLES = ("PATH", "PYTHONPATH", "HOME", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "SYSTEMROOT")


class RenderError(RuntimeError):
    """A plot could not be rendered."""


class Renderer:
    """A rendering process, started when needed; a plot longer than `max_seconds` ends it."""

    def __init__(self, command: Sequence[str] = COMMAND, max_seconds: float = MAX_SECONDS) -> None:
        self._command = list(command)
        self._max_seconds = max_seconds
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def render(self, spec: Vega, format: Format) -> bytes:  # noqa: A002 (the contract's name)
        """The rendered plot. Raises RenderError: the process refused, crashed, or took too long."""
        return self._answered({"spec": spec, "format": format})

    def _answered(self, asked: dict[str, object]) -> bytes:
        request = json.dumps(asked).encode()
        if len(request) > MAX_SPEC_BYTES:
            raise RenderError(f"the spec has {len(request)} bytes; allowed: {MAX_SPEC_BYTES}")
        deadline = time.monotonic() + self._max_seconds
        if not self._lock.acquire(timeout=self._max_seconds):
            raise RenderError(f"other plots were rendered for {self._max_seconds:.3g} s; try again")
        try:
            fresh = self._process is None or self._process.poll() is not None
            try:
                return self._exchange(request, deadline)
            except BrokenPipeError:
                if fresh:  # An idle process may end at any time.
                    raise RenderError("the rendering process ended at its start") from None
                return self._exchange(request, deadline)
        finally:
            self._lock.release()

    def bundle(self) -> bytes:
        """The scripts that draw specs in a browser, as `bundle`."""
        return self._answered({"spec": {}, "format": "bundle"})

    def close(self) -> None:
        """Ends the process."""
        with self._lock:
            self._end()

    def _exchange(self, request: bytes, deadline: float) -> bytes:
        process = self._running()
        assert process.stdin is not None
        try:
            process.stdin.write(len(request).to_bytes(4, "big") + request)
            process.stdin.flush()
            header = self._read(process, 5, deadline)
            content = self._read(process, int.from_bytes(header[1:], "big"), deadline)
        except (RenderError, OSError):
            self._end()
            raise
        if header[0] != 0:
            raise RenderError(f"the plot could not be rendered: {content.decode(errors='replace')}")
        return content

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._end()
            environment = {name: os.environ[name] for name in VARIABLES if name in os.environ}
            self._process = subprocess.Popen(  # noqa: S603 (ours)
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
        return self._process

    def _read(self, process: subprocess.Popen[bytes], size: int, deadline: float) -> bytes:
        assert process.stdout is not None
        found = b""
        while len(found) < size:
            ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise RenderError(f"the plot took longer than {self._max_seconds:.3g} s to render")
            piece = os.read(process.stdout.fileno(), size - len(found))
            if not piece:
                raise RenderError(f"the rendering process ended with exit code {process.wait(timeout=5)}")
            found += piece
        return found

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                with contextlib.suppress(BrokenPipeError):  # a request may be waiting to be written.
                    if pipe is not None:
                        pipe.close()
            self._process = None


_RENDERER = Renderer()
atexit.register(_RENDERER.close)


def render(
    spec: Vega,
    format: Format,  # noqa: A002 (the contract's name)
    *,
    scheme: Scheme = "light",
    narrow: bool = False,
    cache: Path | None = None,
) -> bytes:
    """A plot as a file's content, kept in `cache`; a PNG has 3 pixels for each of the spec. RenderError."""
    drawn = themed(spec, scheme, narrow=narrow)
    path = None if cache is None else cache / f"{digest(drawn, format)}.{format}"
    if path is not None and path.is_file():
        return path.read_bytes()
    content = _RENDERER.render(drawn, format)
    if path is not None:
        _keep(path, content)
    return content


def bundle(cache: Path) -> tuple[Path, str]:
    """Scripts of Vega, Vega-Lite, Vega-Embed from the renderer's package; RenderError: it crashed or hung."""
    version = _version() or "0"
    path = cache / f"vega-{version}.js"
    if not path.is_file():
        _keep(path, _RENDERER.bundle())
    return path, version


def digest(drawn: Vega, format: str) -> str:  # noqa: A002 (the contract's name)
    """The name of a rendered plot, by its themed spec: equal for equal input and version of the rendering."""
    parts = json.dumps([VERSION, _version(), drawn, format], sort_keys=True)
    return hashlib.sha256(parts.encode()).hexdigest()


def _version() -> str:
    try:
        return importlib.metadata.version("vl-convert-python")
    except importlib.metadata.PackageNotFoundError:
        return ""


def _keep(path: Path, content: bytes) -> None:
    """Write a file of the cache atomically: several processes may write it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")
    temporary.write_bytes(content)
    temporary.replace(path)
    files = list(path.parent.iterdir())
    if len(files) > MAX_CACHED:
        stamped = sorted((file.stat().st_mtime, file) for file in files if file.is_file())
        for _, file in stamped[: len(files) // 2]:
            file.unlink(missing_ok=True)
