"""The header of a safetensors file, read without the library."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from assay.service.contract.errors import InvalidSpec
from assay.service.files import safetensors_header
from assay.service.files.safetensors_header import MAX_HEADER_BYTES, _bytes, _tensor, read_header
from tests.support.tensors import tensor_file, with_header


def entry(shape: Any = (2,), offsets: Any = (0, 8), dtype: Any = "F32", **more: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets, **more}


def read(folder: Path, content: bytes) -> Any:
    path = folder / "file"
    path.write_bytes(content)
    return read_header(path)


def test_what_the_library_writes_is_read(tmp_path: Path) -> None:
    dtypes = [
        torch.float32,
        torch.float64,
        torch.bfloat16,
        torch.float16,
        torch.int64,
        torch.uint8,
        torch.bool,
    ]
    tensors = {f"t{i}": torch.zeros(i, 3, dtype=dtype) for i, dtype in enumerate(dtypes)}
    tensors["scalar"] = torch.tensor(1.5)
    header = read(tmp_path, safetensors.torch.save(tensors, metadata={"a": "b"}))
    assert header.shapes == {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    assert header.metadata == {"a": "b"}


@pytest.mark.costly
@pytest.mark.parametrize("tensors", [6_667, 40_000])
def test_a_model_of_many_tensors_is_read(tmp_path: Path, tensors: int) -> None:
    """A cap meant for bodies allowed 6,666."""
    header = {f"t{at}": entry(shape=(), offsets=(4 * at, 4 * at + 4)) for at in range(tensors)}
    assert len(read(tmp_path, with_header(header, 4 * tensors)).shapes) == tensors


WRONG = {
    "nothing": (b"", "it has 0 bytes"),
    "a length alone": ((9).to_bytes(8, "little"), "cut off: its header has 9 bytes"),
    "a huge length": ((2**63).to_bytes(8, "little") + b"{}", f"at most {MAX_HEADER_BYTES}"),
    "a pickle": (b"\x80\x02}q\x00." * 10, "would have"),
    "an array": (with_header(b"[]", 0), "no JSON object"),
    "broken JSON": (with_header(b'{"a": ', 0), "its header: the text is not JSON"),
    "a name twice": (with_header(b'{"a": {}, "a": {}}', 0), "its header"),
    "deep JSON": (with_header(b'{"a": ' + b"[" * 99 + b"]" * 99 + b"}", 0), "nested too deeply"),
    "no tensors": (with_header({"__metadata__": {}}, 0), "it has no tensors"),
    "odd metadata": (with_header({"__metadata__": {"a": 1}, "t": entry()}, 8), "must be texts by name"),
    "metadata that is a list": (with_header({"__metadata__": [], "t": entry()}, 8), "must be texts by name"),
    "a field too many": (with_header({"t": entry(color="red")}, 8), "must have the fields"),
    "a tensor that is a number": (with_header({"t": 3}, 8), "must have the fields"),
    "an unknown dtype": (with_header({"t": entry(dtype="F31")}, 8), "the dtype 'F31'"),
    "a dtype that is a list": (with_header({"t": entry(dtype=[])}, 8), "the dtype"),
    "a negative size": (with_header({"t": entry(shape=(-2,))}, 8), "integers of at least 0"),
    "a true size": (with_header({"t": entry(shape=(True, 2))}, 8), "integers of at least 0"),
    "three offsets": (with_header({"t": entry(offsets=(0, 4, 8))}, 8), "two data_offsets"),
    "too many dimensions": (
        with_header({"t": entry(shape=(1,) * 17)}, 8),
        "17 dimensions, allowed: at most 16",
    ),
    "dimensions without end": (with_header({"t": entry(shape=(10**24,) * 40_000)}, 8), "40000 dimensions"),
    "large dimensions": (with_header({"t": entry(shape=(10**24,) * 16)}, 8), "bytes that the file has"),
    "a product beyond the file": (with_header({"t": entry(shape=(2**20, 2**20))}, 8), "takes more than the"),
    "no elements of a large size": (with_header({"t": entry(shape=(0, 10**24))}, 8), "takes more than the"),
    "an endless integer": (with_header(b'{"t": ' + b"9" * 5000 + b"}", 0), "an integer has 5000 characters"),
    "too many values": (with_header(b"{" + b"[," * 300_000, 0), "has 600001 values, allowed: at most 600000"),
    "endless nesting": (with_header(b'{"t": ' + b"[" * 10**5 + b"}", 0), "nested too deeply"),
    "a lie about the size": (with_header({"t": entry(shape=(3,))}, 8), "takes 12 bytes, its offsets 8"),
    "offsets in reverse": (with_header({"t": entry(offsets=(8, 0))}, 8), "takes 8 bytes, its offsets -8"),
    "an overlap": (with_header({"a": entry(), "b": entry(offsets=(4, 12))}, 12), "overlap at byte 4"),
    "a gap": (with_header({"a": entry(), "b": entry(offsets=(12, 20))}, 20), "leave a gap at byte 8"),
    "a late start": (with_header({"a": entry(offsets=(8, 16))}, 16), "leave a gap at byte 0"),
    "too little data": (
        tensor_file()[:-1],
        "it is cut off: its tensors take 32 bytes, after the header the file has 31",
    ),
    "too much data": (tensor_file() + b"!", "something follows its tensors"),
    "NaN": (with_header(b'{"t": NaN}', 0), "its header"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_such_file_is_refused_with_the_reason(tmp_path: Path, case: str) -> None:
    content, reason = WRONG[case]
    with pytest.raises(InvalidSpec) as caught:
        read(tmp_path, content)
    assert reason in caught.value.message
    assert caught.value.details[0].loc == ["body"]
    json.dumps(caught.value.envelope().model_dump(mode="json"))


class Counted(list[int]):
    """A list that counts how many of its items are looked at."""

    looks = 0

    def __iter__(self) -> Iterator[int]:
        for item in super().__iter__():
            type(self).looks += 1
            yield item


def test_no_size_of_too_many_is_looked_at() -> None:
    Counted.looks = 0
    with pytest.raises(InvalidSpec, match="'t' has 1000000 dimensions"):
        _tensor("t", entry(shape=Counted([1] * 10**6)), 100)
    assert Counted.looks == 0


def test_no_product_is_larger_than_the_file() -> None:
    assert _bytes([2, 3], 4, 24) == 24
    assert _bytes([2, 3], 4, 23) is None
    assert _bytes([], 8, 8) == 8
    assert _bytes([5, 0, 2**62, 2**62], 4, 24) == 0
    sizes = Counted([2] * 16)
    Counted.looks = 0
    assert _bytes(sizes, 4, 4 * 2**3) is None
    # Once for the largest of them; then it stops at the fourth, which is one too many.
    assert Counted.looks == 16 + 4


def test_the_first_of_many_wrong_tensors_ends_the_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_tensor, names = safetensors_header._tensor, []

    def counted(name: str, *more: Any) -> Any:
        names.append(name)
        return read_tensor(name, *more)

    monkeypatch.setattr(safetensors_header, "_tensor", counted)
    wrong = {f"t{number}": entry(shape=(10**24,) * 300) for number in range(200)}
    with pytest.raises(InvalidSpec, match="'t0' has 300 dimensions, allowed: at most 16"):
        read(tmp_path, with_header(wrong, 8))
    assert names == ["t0"]


def test_every_shorter_file_is_refused(tmp_path: Path) -> None:
    whole = tensor_file()
    for length in range(len(whole)):
        with pytest.raises(InvalidSpec):
            read(tmp_path, whole[:length])
