"""Archives as `torch.export.save` writes them, right and wrong ones, written without torch."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

MARKS = {"archive_format": b"pt2", "archive_version": b"0", "byteorder": b"little", ".data/version": b"6\n"}
GRAPH = "models/model.json"


def archive(
    entries: Mapping[str, bytes] | None = None, *, root: str = "net", compressed: bool = False
) -> bytes:
    """An archive with the marks of a program and these entries, by their names below the root."""
    content = io.BytesIO()
    method = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(content, "w", method) as file:
        for name, data in {**MARKS, GRAPH: b"{}", **(entries or {})}.items():
            file.writestr(f"{root}/{name}", data)
    return content.getvalue()


def entries_of(path: Path) -> dict[str, bytes]:
    """The entries of an archive by their names below the root."""
    with zipfile.ZipFile(path) as file:
        return {name.partition("/")[2]: file.read(name) for name in file.namelist()}
