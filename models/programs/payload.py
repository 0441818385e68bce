"""Tensors of an exported program: bytes of the archive, with the shapes stated in its tables."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from assay.models.programs.reading import ReadEntry, field, integer, listed, parse, refuse, shown, union

MAX_TABLE_BYTES = 32 * 2**20
MAX_TENSOR_BYTES = 2**36
MAX_DIMENSIONS = 16
# Names may share bytes (tied weights), but a small file must not expand into a large model.
MAX_SHARED = 4
# The numbers of `torch._export.serde.schema.ScalarType`, without 8-bit floats and large unsigned integers.
DTYPES = {
    1: torch.uint8,
    2: torch.int8,
    3: torch.int16,
    4: torch.int32,
    5: torch.int64,
    6: torch.float16,
    7: torch.float32,
    8: torch.float64,
    9: torch.complex32,
    10: torch.complex64,
    11: torch.complex128,
    12: torch.bool,
    13: torch.bfloat16,
}
STRIDED = 7
FOLDERS = {"weights": "weight_", "constants": "tensor_"}


def read_tensors(read: ReadEntry, model: str) -> dict[str, Tensor]:
    """Parameters, buffers and constants of a program by qualified name."""
    found: dict[str, Tensor] = {}
    stored = total = 0
    for folder, prefix in FOLDERS.items():
        name = f"data/{folder}/{model}_{folder}_config.json"
        table = field(parse(read(name, MAX_TABLE_BYTES), name), "config", dict)
        whole: dict[str, bytearray] = {}
        for tensor_name, entry in table.items():
            path = _path(tensor_name, entry, prefix)
            if path not in whole:
                whole[path] = bytearray(read(f"data/{folder}/{path}", MAX_TENSOR_BYTES))
                stored += len(whole[path])
            tensor = _tensor(tensor_name, field(entry, "tensor_meta", dict), whole[path])
            total += tensor.nbytes
            if total > MAX_SHARED * max(stored, 1):
                refuse(
                    f"its tensors would take more than {MAX_SHARED} times the bytes that the file has of them"
                )
            if tensor_name in found:
                refuse(f"it has two tensors called {shown(tensor_name)}")
            found[tensor_name] = tensor.clone(memory_format=torch.contiguous_format)
    return found


def _path(name: str, entry: Any, prefix: str) -> str:
    path = field(entry, "path_name", str)
    if field(entry, "use_pickle", bool):
        refuse(f"the tensor {shown(name)} is pickled, as it is of a class of its own: make it a plain tensor")
    number = path.removeprefix(prefix)
    if not path.startswith(prefix) or not (number.isascii() and number.isdigit()):
        refuse(f"the constant {shown(name)} is no tensor ({shown(path)})")
    return path


def _tensor(name: str, meta: Mapping[str, Any], content: bytearray) -> Tensor:
    number = field(meta, "dtype", int)
    if number not in DTYPES or field(meta, "layout", int) != STRIDED:
        refuse(f"the tensor {shown(name)} has a type or layout that is not taken: dtype {number}")
    dtype = DTYPES[number]
    sizes, strides = listed(meta.get("sizes"), _fixed), listed(meta.get("strides"), _fixed)
    offset = _fixed(meta.get("storage_offset"))
    if len(sizes) != len(strides) or len(sizes) > MAX_DIMENSIONS or min([offset, *sizes, *strides]) < 0:
        refuse(f"the tensor {shown(name)} has the sizes {sizes} and strides {strides} from {offset}")
    elements = len(content) // dtype.itemsize
    last = offset + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    count = math.prod(sizes)
    if count and (last >= elements or count > elements):
        refuse(f"the tensor {shown(name)} takes {count} elements up to {last}, its bytes have {elements}")
    if not count:
        return torch.empty(sizes, dtype=dtype)
    flat = torch.frombuffer(content, dtype=dtype, count=elements)
    return torch.as_strided(flat, sizes, strides, offset)


def _fixed(size: Any) -> int:
    which, value = union(size, "a size")
    if which != "as_int":
        refuse(f"the size of a stored tensor is {shown(size)}: weights have fixed sizes")
    return integer(value)
