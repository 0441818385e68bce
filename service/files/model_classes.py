"""What a model's file says of its classes, read without the libraries that run it.

Exported programs state the size of their logits in the graph and perhaps names beside it, weights of training
jobs state names in their header, ONNX models the size of their result.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from assay.service.contract.errors import AssayError
from assay.service.files.program_file import BadProgram, open_program
from assay.service.files.safetensors_header import read_header

NOTES = "extra/assay.json"
MAX_NOTES_BYTES = 8 * 2**20
MAX_GRAPH_BYTES = 64 * 2**20
# Fields of ONNX's messages: ModelProto.graph, GraphProto.output, ValueInfoProto.type, TypeProto.tensor_type,
# Tensor.shape, TensorShapeProto.dim, Dimension.dim_value.
GRAPH, OUTPUT, TYPE, TENSOR, SHAPE, DIM, DIM_VALUE = 7, 12, 2, 1, 2, 1, 1
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MAX_MESSAGE = 2**16


@dataclass(frozen=True)
class ModelClasses:
    """The number of a classifier's logits, and their names in order; None where the file does not say."""

    count: int | None = None
    names: tuple[str, ...] | None = None


def classes_in(path: Path) -> ModelClasses:
    """What a file says; nothing for one that cannot be read, which its reader refuses."""
    read = {".pt2": _of_program, ".onnx": _of_onnx, ".safetensors": _of_weights}.get(path.suffix)
    try:
        return ModelClasses() if read is None else read(path)
    except (
        OSError,
        AssayError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        EOFError,
        RecursionError,
    ):
        return ModelClasses()


def names_in_program(path: Path) -> tuple[str, ...] | None:
    """The names of a program's logits, as its file states them; BadProgram for a wrong file or notes."""
    file = open_program(path)
    if NOTES not in file.sizes:
        return None
    with file.reading() as read:
        try:
            found = json.loads(read(NOTES, MAX_NOTES_BYTES))
        except (ValueError, RecursionError) as error:
            raise BadProgram(f"its {NOTES} is no JSON") from error
    names = found.get("class_names") if isinstance(found, Mapping) else None
    return tuple(map(str, names)) if isinstance(names, list) else None


def _of_program(path: Path) -> ModelClasses:
    file = open_program(path)
    with file.reading() as read:
        module = json.loads(read(file.graph, MAX_GRAPH_BYTES))["graph_module"]
    (result,) = module["signature"]["output_specs"]
    name = result["user_output"]["arg"]["as_tensor"]["name"]
    sizes = module["graph"]["tensor_values"][name]["sizes"]
    # (B, K) or (B, K, S, S); the logits of a language model, (B, L, V), are words.
    count = sizes[1].get("as_int") if len(sizes) in (2, 4) else None
    return ModelClasses(count, names_in_program(path))


def _of_weights(path: Path) -> ModelClasses:
    names = json.loads(read_header(path).metadata["trained_on"])["class_names"]
    return ModelClasses(len(names), tuple(names)) if names else ModelClasses()


def _of_onnx(path: Path) -> ModelClasses:
    with path.open("rb") as file:
        outputs = []
        for number, size in _fields(file, path.stat().st_size):
            if number != GRAPH:
                continue
            for inner, length in _fields(file, size):
                if inner == OUTPUT and length <= MAX_MESSAGE:
                    outputs.append(_dims(file, length))
    sizes = outputs[0] if len(outputs) == 1 else []
    return ModelClasses(sizes[1] if len(sizes) in (2, 4) else None)


def _dims(file: BinaryIO, size: int) -> list[int | None]:
    if not (of_type := list(_inside(file, size, (TYPE, TENSOR, SHAPE)))):
        return []
    begin, length = of_type[0]
    file.seek(begin)
    found: list[int | None] = []
    for number, inner in _fields(file, length):
        if number == DIM:
            values = [value for field, value in _fields(file, inner, values=True) if field == DIM_VALUE]
            found.append(values[0] if values else None)
    return found


def _inside(file: BinaryIO, size: int, path: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    for number, length in _fields(file, size):
        if number == path[0]:
            if len(path) == 1:
                yield file.tell(), length
            else:
                yield from _inside(file, length, path[1:])


def _fields(file: BinaryIO, size: int, *, values: bool = False) -> Iterator[tuple[int, int]]:
    """Number and length, or with `values` the integer, of each field; the file is then at its content."""
    end = file.tell() + size
    while file.tell() < end:
        key = _varint(file)
        number, kind = key >> 3, key & 7
        if kind == BYTES:
            length = _varint(file)
            begin = file.tell()
            if not values:
                yield number, length
            file.seek(begin + length)
        elif kind == VARINT:
            value = _varint(file)
            if values:
                yield number, value
        elif kind in (FIXED32, FIXED64):
            file.seek(4 if kind == FIXED32 else 8, 1)
        else:
            raise ValueError("this is no protocol buffer")


def _varint(file: BinaryIO) -> int:
    value = 0
    for shift in range(0, 70, 7):
        byte = file.read(1)
        if not byte:
            raise EOFError
        value |= (byte[0] & 127) << shift
        if byte[0] < 128:
            return value
    raise ValueError("this is no protocol buffer")
