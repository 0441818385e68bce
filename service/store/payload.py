"""Outcome columns as compressed JSON. Floats come back bit for bit, NaN and infinities too."""

from __future__ import annotations

import json
import math
import zlib
from typing import Any

# JSON has no NaN or infinity; a float that is not finite becomes {"$float": "nan" | "inf" | "-inf"}.
MARK = "$float"


def pack(columns: dict[str, list[Any]], extra: dict[str, Any]) -> bytes:
    """Compresses the columns and the extra values of an outcome.

    Raises:
        TypeError: for a value that JSON does not know.
    """
    value = {"columns": columns, "extra": extra}
    try:
        text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    except ValueError:
        text = json.dumps(_marked(value), allow_nan=False, separators=(",", ":"))
    return zlib.compress(text.encode("ascii"))


def unpack(payload: bytes) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    """Reads back what `pack` wrote: columns and extra values."""
    value = json.loads(zlib.decompress(payload), object_hook=_unmarked)
    return value["columns"], value["extra"]


def _marked(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else {MARK: repr(value)}
    if isinstance(value, dict):
        return {key: _marked(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_marked(item) for item in value]
    return value


def _unmarked(value: dict[str, Any]) -> Any:
    return float(value[MARK]) if value.keys() == {MARK} else value
