"""Files of data that grow when they are read: images, tables, archives of them.

A data set comes from a download. Its reader runs in an evaluator with limits, or, for a dry run that decodes,
in a process beside the service: neither may take the machine, and a job must end with a reason.
"""

from __future__ import annotations

import json
import struct
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet
from PIL import Image

from assay.service.client import AssayClient
from tests.hostile.attempt import Attempt, Target

SECONDS = 180.0
# Of a process and all that it started, while the file is read.
MAX_RESIDENT = 6 << 30
MIB = 1 << 20


def _folder(target: Target, name: str, suffix: str, content: Callable[[Path], None]) -> str:
    """Two classes with an honest image each, and one hostile file."""
    for label in ("cat", "dog"):
        folder = target.data / name / "test" / label
        folder.mkdir(parents=True, exist_ok=True)
        noise = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
        Image.fromarray(noise).save(folder / "honest.png")
    content(target.data / name / "test" / "cat" / f"bomb{suffix}")
    return name


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _png(path: Path, width: int, height: int, *more: bytes) -> None:
    """An image of zeros: a byte of the file is a thousand of memory."""
    packed = zlib.compressobj(9)
    row = bytes(1 + 3 * width)
    rows = b"".join(packed.compress(row) for _ in range(height)) + packed.flush()
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = [_chunk(b"IHDR", header), *more, _chunk(b"IDAT", rows), _chunk(b"IEND", b"")]
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))


def large_png(path: Path) -> None:
    _png(path, 16_000, 16_000)


def text_png(path: Path) -> None:
    """A comment of a gigabyte."""
    packed = zlib.compressobj(9)
    text = b"".join(packed.compress(bytes(MIB)) for _ in range(1024)) + packed.flush()
    _png(path, 32, 32, _chunk(b"zTXt", b"Comment\0\0" + text))


def claimed_bmp(path: Path) -> None:
    """65,000 x 65,000 pixels in 54 bytes."""
    size = struct.pack("<IiiHHIIiiII", 40, 65_000, 65_000, 1, 24, 0, 0, 0, 0, 0, 0)
    path.write_bytes(b"BM" + struct.pack("<IHHI", 54, 0, 0, 54) + size)


def _images(target: Target, name: str) -> dict[str, Any]:
    model = {
        "name": "vit",
        "params": {"image_size": 32, "patch_size": 8, "width": 12, "depth": 1, "heads": 2},
    }
    data = {"name": "image_folder", "params": {"folder": name}}
    return _job(model, data)


def _texts(target: Target, name: str) -> dict[str, Any]:
    model = {"name": "sequence_transformer", "params": {"width": 12, "depth": 1, "heads": 2}}
    columns = {"text": "text", "label": "label", "class_names": ["a", "b"]}
    return _job(model, {"name": "text_table", "params": {"folder": name, **columns}})


def _job(model: Any, data: Any) -> dict[str, Any]:
    return {
        "kind": "evaluate",
        "model": model,
        "data": data,
        "execution": {"device": "cpu"},
        "evaluations": [{"name": "clean"}],
    }


def repeated_rows(path: Path) -> None:
    """A thousand million rows of one text, run-length encoded: a few hundred kilobytes."""
    rows = 1 << 24
    texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array(["x" * 4000]))
    labels = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array(["a"]))
    table = pa.table({"text": texts, "label": labels})
    pyarrow.parquet.write_table(table, path, store_schema=False, row_group_size=rows)


def sparse(path: Path) -> None:
    """Eight gigabytes of zeros, of which the disk has none."""
    with path.open("wb") as file:
        file.write(b"text,label\n")
        file.truncate(8 << 30)


def deep(path: Path) -> None:
    """A value in a million lists."""
    path.write_text('{"label": "a", "text": ' + "[" * 1_000_000 + "]" * 1_000_000 + "}\n")


def wide(path: Path) -> None:
    """Two million columns."""
    path.write_text("text,label," + ",".join(map(str, range(2_000_000))) + "\n")


def _table(target: Target, name: str, suffix: str, content: Callable[[Path], None]) -> str:
    folder = target.data / name
    folder.mkdir(exist_ok=True)
    rows = [{"text": f"word{number % 7} other", "label": "ab"[number % 2]} for number in range(40)]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    content(folder / f"test{suffix}")
    return name


def _read(make: Callable[..., str], suffix: str, content: Callable[[Path], None], spec: Any) -> Any:
    """A job on the file ends with a reason, and so does a dry run that decodes it."""

    def run(target: Target) -> str:
        name = make(target, content.__name__, suffix, content)
        body = spec(target, name)
        headers = {"Authorization": f"Bearer {target.alice}"}
        begun = time.monotonic()
        looked = httpx.post(
            f"{target.url}/api/v1/jobs?dry_run=true&decode=true", json=body, headers=headers, timeout=SECONDS
        )
        seconds = time.monotonic() - begun
        assert looked.status_code == 200, (looked.status_code, looked.text[:300])
        (found,) = looked.json()["data"]
        assert found["problem"] or found["unreadable_count"], found
        with AssayClient(target.url, key=target.alice) as client:
            job = client.submit(body)
            ended = client.wait(job.id, timeout_seconds=SECONDS)
            assert client.ready()
            assert ended.state == "failed", ended.state
            assert ended.error is not None
            said = ended.error.message
        assert "Error:" not in said, said
        return f"looked at in {seconds:.0f} s; {said[:110]}"

    return run


ATTEMPTS = (
    Attempt("an image of 16,000 x 16,000 in a megabyte", _read(_folder, ".png", large_png, _images)),
    Attempt("an image with a comment of a gigabyte", _read(_folder, ".png", text_png, _images)),
    Attempt("an image of 65,000 x 65,000 in 54 bytes", _read(_folder, ".bmp", claimed_bmp, _images)),
    Attempt("a table of 16 million equal rows", _read(_table, ".parquet", repeated_rows, _texts)),
    Attempt("a table of eight gigabytes of zeros", _read(_table, ".csv", sparse, _texts)),
    Attempt("a value in a million lists", _read(_table, ".jsonl", deep, _texts)),
    Attempt("a table of two million columns", _read(_table, ".csv", wide, _texts)),
)
