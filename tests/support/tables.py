"""Small tables as users have them: files, and folders that `datasets` has saved."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from PIL import Image

Rows = Sequence[Mapping[str, Any]]


def write_table(path: Path, rows: Rows, *, classes: Sequence[str] | None = None) -> Path:
    """A file of rows, by its suffix; `classes` are written as `datasets` does, for a column label."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    elif path.suffix in (".csv", ".tsv"):
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]), delimiter="\t" if path.suffix == ".tsv" else ",")
            writer.writeheader()
            writer.writerows(rows)
    else:
        table = pa.Table.from_pylist([dict(row) for row in rows])
        if classes is not None:
            features = {"label": {"names": list(classes), "_type": "ClassLabel"}}
            table = table.replace_schema_metadata(
                {"huggingface": json.dumps({"info": {"features": features}})}
            )
        pa.parquet.write_table(table, path, row_group_size=2)
    return path


def encoded(pixels: np.ndarray[Any, Any], form: str = "PNG") -> bytes:
    """An image file, from uint8 (H, W, 3)."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, form)
    return buffer.getvalue()
