"""Small safetensors files, right and wrong ones, written without the library."""

from __future__ import annotations

import json
from typing import Any


def tensor_file(
    shapes: dict[str, tuple[int, ...]] | None = None, *, model: dict[str, Any] | str | None = None
) -> bytes:
    """A float32 file of zeros; `model` goes into its header as training jobs write it."""
    header: dict[str, Any] = {}
    at = 0
    for name, shape in (shapes or {"head.weight": (2, 3), "head.bias": (2,)}).items():
        size = 4
        for length in shape:
            size *= length
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    if model is not None:
        header["__metadata__"] = {"model": model if isinstance(model, str) else json.dumps(model)}
    return with_header(header, at)


def with_header(header: Any, data_bytes: int) -> bytes:
    """A file with this header, be it JSON or bytes, and so many zeros after it."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(data_bytes)
