"""Reads the header of a safetensors file in pure Python, with strict checks of the format.

Format (github.com/huggingface/safetensors, "Format"): 8 bytes with the header's length N (little-endian), N
bytes of JSON that begin with `{`, then the tensors without gaps. The JSON maps each tensor's name to
{"dtype", "shape", "data_offsets": [begin, end]}, and `__metadata__` to texts by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from assay.service.contract.errors import MalformedJson
from assay.service.contract.problems import MAX_INTEGER, Problems, readable
from assay.service.contract.strict_json import parse_json

BYTES = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2"), 1),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 2),
    **dict.fromkeys(("U32", "I32", "F32"), 4),
    **dict.fromkeys(("U64", "I64", "F64"), 8),
}
METADATA = "__metadata__"
FIELDS = {"dtype", "shape", "data_offsets"}
LENGTH_BYTES = 8
MAX_HEADER_BYTES = 8 * 1024 * 1024  # Large models: some thousand tensors of a hundred bytes.
MAX_DEPTH = 8
MAX_VALUES = 600_000  # Separators in it: a tensor has about ten, and each can cost a hundred bytes of memory.
MAX_DIMENSIONS = 16  # As many as torch can index; the reader of exported programs has the same limit.


@dataclass(frozen=True)
class Header:
    """The header of a file."""

    shapes: Mapping[str, tuple[int, ...]]  # by the names of the tensors
    places: Mapping[str, tuple[str, int]]  # dtype, and place of the first byte in the file
    metadata: Mapping[str, str]  # texts by name; empty without any


def read_header(path: Path) -> Header:
    """The header of a file, checked against its size; InvalidSpec says why it is no safetensors file."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(LENGTH_BYTES), "little")
        if size < LENGTH_BYTES:
            _refuse(f"it has {size} bytes, fewer than the {LENGTH_BYTES} that the header's length takes")
        if length > MAX_HEADER_BYTES:
            _refuse(f"its header would have {length} bytes, allowed: at most {MAX_HEADER_BYTES}")
        raw = file.read(length)
    if len(raw) < length:
        _refuse(f"it is cut off: its header has {length} bytes, after {LENGTH_BYTES} the file has {len(raw)}")
    if not raw.startswith(b"{"):
        _refuse("its header is no JSON object")
    values = sum(raw.count(separator) for separator in (b",", b"[", b"{"))
    if values > MAX_VALUES:
        _refuse(f"its header has {values} values, allowed: at most {MAX_VALUES}")
    try:
        content = parse_json(raw, MAX_DEPTH, MAX_VALUES)
    except MalformedJson as error:
        _refuse(f"its header: {error.message.replace('the body', 'the text')}")
    metadata = _metadata(content.pop(METADATA, {}))
    tensors = {name: _tensor(name, entry, size) for name, entry in content.items()}
    _check_data([offsets for _, offsets in tensors.values()], size - LENGTH_BYTES - length)
    first = LENGTH_BYTES + length
    return Header(
        {name: shape for name, (shape, _) in tensors.items()},
        {name: (content[name]["dtype"], first + begin) for name, (_, (begin, _)) in tensors.items()},
        metadata,
    )


def _metadata(found: Any) -> dict[str, str]:
    if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
        _refuse(f"{METADATA} must be texts by name")
    return dict(found)


def _tensor(name: str, entry: Any, file_size: int) -> tuple[tuple[int, ...], tuple[int, int]]:
    shown = repr(readable(name))
    if not isinstance(entry, dict) or set(entry) != FIELDS:
        _refuse(f"tensor {shown} must have the fields {', '.join(sorted(FIELDS))}")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in BYTES:
        _refuse(f"tensor {shown} has the dtype {readable(str(dtype))!r}, allowed: {', '.join(sorted(BYTES))}")
    if isinstance(shape, list) and len(shape) > MAX_DIMENSIONS:  # Before use: a header has room for millions.
        _refuse(f"tensor {shown} has {len(shape)} dimensions, allowed: at most {MAX_DIMENSIONS}")
    if not _counts(shape) or not _counts(offsets) or len(offsets) != 2:
        _refuse(f"tensor {shown} must have a shape, and two data_offsets, of integers of at least 0")
    begin, end = offsets
    needed = _bytes(shape, BYTES[dtype], file_size)
    if needed is None:
        _refuse(
            f"tensor {shown} of shape {shape} and {dtype} takes more than the {file_size} bytes that the file"
            " has"
        )
    if end - begin != needed:
        _refuse(
            f"tensor {shown} of shape {shape} and {dtype} takes {needed} bytes, its offsets {end - begin}"
        )
    return tuple(shape), (begin, end)


def _bytes(shape: list[int], item: int, max_bytes: int) -> int | None:
    """Bytes of a tensor; None beyond `max_bytes`, detected before the product grows larger."""
    if max(shape, default=0) > MAX_INTEGER:
        return None
    if 0 in shape:
        return 0
    needed = item
    for size in shape:
        if size > max_bytes // needed:
            return None
        needed *= size
    return needed


def _counts(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)


def _check_data(offsets: list[tuple[int, int]], size: int) -> None:
    """The tensors must fill the bytes after the header, without gaps or overlaps."""
    if not offsets:
        _refuse("it has no tensors")
    at = 0
    for begin, end in sorted(offsets):
        if begin != at:
            _refuse(f"its tensors {'overlap' if begin < at else 'leave a gap'} at byte {min(begin, at)}")
        at = end
    if at != size:
        what = "it is cut off" if at > size else "something follows its tensors"
        _refuse(f"{what}: its tensors take {at} bytes, after the header the file has {size}")


def _refuse(reason: str) -> NoReturn:
    problems = Problems()
    problems.add(
        ("body",), f"this is no safetensors file: {reason}", allowed="a file that safetensors has written"
    )
    problems.raise_if_any()
    raise AssertionError("there is a remark")
