"""A small CamVid on disk."""

from __future__ import annotations

from pathlib import Path

from tests.support.segmentation_files import write_pair

SIZES = [(48, 32), (48, 32), (32, 48), (40, 40)]  # (W, H)


def write(root: Path) -> None:
    for part in ("train", "val", "test"):
        for number, size in enumerate(SIZES):
            image = root / "camvid" / part / f"{part}{number}.png"
            annotation = root / "camvid" / f"{part}annot" / image.name
            write_pair(image, annotation, [0, 3, 11, 10], size, seed=number)
