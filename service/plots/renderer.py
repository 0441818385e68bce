"""The process that renders: `python -P -m assay.service.plots.renderer`.

It alone imports vl-convert (some hundred megabytes, seconds to start). It reads requests from standard input
and writes answers to standard output, one at a time; libraries' texts go to standard error. A spec that names
an address or a file is refused, and the list of allowed addresses is empty. Memory and processor time are
limited; it ends with its parent, and after an idle minute.

A request is 4 bytes of length (big-endian) and JSON {"spec", "format"}; the format "bundle", without spec, is
the scripts that draw specs in a browser. An answer is a byte, 0 for a plot and 1 for a message, 4 bytes of
length, and the content.
"""

from __future__ import annotations

import json
import os
import queue
import resource
import sys
import threading
from typing import Any, BinaryIO

IDLE_SECONDS = 60.0
MAX_MEMORY_BYTES = 2 * 1024**3
MAX_PROCESSOR_SECONDS = 600
PNG_SCALE = 3.0  # by a pixel of the spec
HEADER_BYTES = 4


def main() -> None:
    """Answers requests until there are no more."""
    # Private writable memory: the engine reserves far more address space.
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_PROCESSOR_SECONDS, MAX_PROCESSOR_SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    requests: queue.Queue[bytes] = queue.Queue()
    threading.Thread(target=_read, args=(sys.stdin.buffer, requests), daemon=True).start()
    while True:
        try:
            request = requests.get(timeout=IDLE_SECONDS)
        except queue.Empty:
            return
        status, content = _answer(request)
        answers.write(bytes([status]) + len(content).to_bytes(HEADER_BYTES, "big") + content)
        answers.flush()


def _read(stream: BinaryIO, requests: queue.Queue[bytes]) -> None:
    """Queues requests; ends the process, also while rendering, when the parent is gone."""
    while len(header := stream.read(HEADER_BYTES)) == HEADER_BYTES:
        requests.put(stream.read(int.from_bytes(header, "big")))
    os._exit(0)


def _answer(request: bytes) -> tuple[int, bytes]:
    try:
        given = json.loads(request)
        _refuse_addresses(given["spec"])
        return 0, _rendered(given["spec"], given["format"])
    except Exception as error:  # with the trace of the engine's script
        return 1, f"{type(error).__name__}: {error}"[:2000].encode(errors="replace")


def _refuse_addresses(part: Any) -> None:
    """ValueError: the spec names data or an image by an address; the list of allowed ones omits files."""
    if isinstance(part, dict):
        if "url" in part:
            raise ValueError("a spec may not name an address or a file; its data are inline values")
        for value in part.values():
            _refuse_addresses(value)
    elif isinstance(part, list):
        for value in part:
            _refuse_addresses(value)


def _rendered(spec: dict[str, Any], format: str) -> bytes:  # noqa: A002 (the contract's name)
    import vl_convert

    if format == "bundle":
        scripts: str = vl_convert.javascript_bundle(None)  # type: ignore[arg-type]  # None is the default
        return scripts.encode()
    if format == "svg":
        return str(vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])).encode()
    if format == "png":
        return bytes(vl_convert.vegalite_to_png(spec, scale=PNG_SCALE, allowed_base_urls=[]))
    return bytes(vl_convert.vegalite_to_pdf(spec, allowed_base_urls=[]))


if __name__ == "__main__":
    main()
