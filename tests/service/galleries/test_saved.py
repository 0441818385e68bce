"""Saved adversarial examples: images as PNG files, texts, and files that are damaged."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save

from assay.service.files.file_store import FolderFiles
from assay.service.galleries.saved import read_saved, saved_file
from assay.service.store.rows import ArtifactRow

JOB = "0" * 26


def row(folder: Path, name: str, content: bytes) -> ArtifactRow:
    path = folder / JOB / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return ArtifactRow(JOB, name, str(path), len(content), "a", "", 0.0, None)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_picture_has_the_rounded_pixels(tmp_path: Path, channels: int, dtype: type) -> None:
    values: Any = np.random.default_rng(0).uniform(-0.1, 1.1, (3, channels, 4, 5)).astype(dtype)
    values[2, 0, 0, 0] = np.nan
    tensors = {"labels": np.arange(3), "images": values}
    file_content = save(tensors, {"ids": json.dumps(["a", "b", "c"])})
    file = row(tmp_path, "adversarial-000-pgd-00000000.safetensors", file_content)
    for place, example in enumerate("abc"):
        found = read_saved(FolderFiles(tmp_path), file, example, drawn=True)
        assert found is not None
        content = base64.b64decode(found.address.removeprefix("data:image/png;base64,"))
        pixels = np.asarray(Image.open(io.BytesIO(content)))
        wanted = np.floor(255 * np.nan_to_num(values[place]).clip(0, 1) + 0.5).transpose(1, 2, 0)
        assert np.array_equal(pixels.reshape(wanted.shape), wanted)
    assert read_saved(FolderFiles(tmp_path), file, "d", drawn=True) is None
    undrawn = read_saved(FolderFiles(tmp_path), file, "a", drawn=False)
    assert undrawn is not None
    assert undrawn.address == ""


def test_a_text_is_found_by_its_id(tmp_path: Path) -> None:
    lines = "".join(json.dumps({"id": one, "text": f"text {one}\u2028"}) + "\n" for one in "ab")
    file = row(tmp_path, "adversarial-000-word_swap-00000000.jsonl", lines.encode())
    found = read_saved(FolderFiles(tmp_path), file, "b", drawn=True)
    assert found is not None
    assert found.text == "text b\u2028"


def test_damaged_files_are_not_shown(tmp_path: Path) -> None:
    series = save({"images": np.zeros((1, 2, 3), np.float32)}, {"ids": '["a"]'})
    cut = save({"images": np.zeros((1, 1, 2, 2), np.float32)}, {"ids": '["a", "b"]'})
    nested = save({"images": np.zeros((1, 1, 2, 2), np.float32)}, {"ids": "[" * 10**5})
    named = save({"images": np.zeros((1, 1, 2, 2), np.float32)}, {"ids": '{"a": 0}'})
    for content in (
        b"",
        b"x" * 100,
        cut[:-3],
        nested,
        named,
        save({"images": np.zeros(1)}, {"ids": '["b"]'}),
    ):
        file = row(tmp_path, "adversarial-000-pgd-00000000.safetensors", content)
        assert read_saved(FolderFiles(tmp_path), file, "a", drawn=True) is None
    found = read_saved(
        FolderFiles(tmp_path),
        row(tmp_path, "adversarial-000-pgd-00000000.safetensors", series),
        "a",
        drawn=True,
    )
    assert found is not None
    assert found.address == ""
    file = row(tmp_path, "adversarial-000-pgd-00000000.safetensors", cut)
    assert read_saved(FolderFiles(tmp_path), file, "b", drawn=True) is None
    file = row(tmp_path, "adversarial-000-words-00000000.jsonl", b"[1]\n{}\n")
    assert read_saved(FolderFiles(tmp_path), file, "a", drawn=True) is None


def test_the_file_is_of_the_shard_with_the_example(tmp_path: Path) -> None:
    names = ["adversarial-001-pgd-00000000.safetensors", "adversarial-001-pgd-00000064.safetensors"]
    rows = [row(tmp_path, name, b"") for name in (*names, "adversarial-002-pgd-00000032.safetensors", "x")]
    found = [saved_file(rows, 1, number) for number in (0, 63, 64)]
    assert [one and one.name for one in found] == [names[0], names[0], names[1]]
    assert saved_file(rows, 0, 5) is None
