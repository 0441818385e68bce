"""Labelled images in a local table.

Legend: n examples, S requested side.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from annotated_types import Gt, Le
from PIL import Image
from torch import Tensor

from assay.service.contract.findings.data_findings import FileRead
from assay.workers.data.formats import parameters
from assay.workers.data.formats.dataset import (
    CorruptData,
    Levels,
    ListedSet,
    checked_indices,
    checked_size,
    reason_of,
    resize,
)
from assay.workers.data.formats.images.pictures import (
    MODES,
    ORIENTATION,
    SIDEWAYS,
    UNREADABLE,
    fitted,
    in_threads,
    open_picture,
    pixels_of,
    unreadable,
)
from assay.workers.data.formats.table_files import check_columns, pyarrow, read_columns, schema_of
from assay.workers.data.formats.table_labels import ClassNamesFile, TableClassNames, labels_of
from assay.workers.data.formats.tables import (
    ClassSplits,
    ColumnName,
    EvaluatedPart,
    Table,
    find_parts,
    rows_of,
)
from assay.workers.data.image_folder import BY_CHANNELS, GREY_MEAN, GREY_STD, MEAN, RESAMPLING, STD

__all__ = ["image_table"]

TASKS = ("classification",)
FACTS = {"by_parameter": {"channels": BY_CHANNELS}}


def image_table(
    root: parameters.Root,
    split: parameters.Split,
    *,
    folder: Annotated[str, "folder"],
    image: ColumnName = "image",
    label: ColumnName = "label",
    evaluated: EvaluatedPart = None,
    splits: ClassSplits = "auto",
    class_names: TableClassNames = None,
    class_names_file: ClassNamesFile = None,
    fit: Literal["crop", "squash"] = "crop",
    interpolation: Literal["bicubic", "bilinear"] = "bicubic",
    crop_fraction: Annotated[float, Gt(0), Le(1)] | None = None,
    channels: Literal[1, 3] = 3,
    exif_orientation: bool = False,
) -> ImageTable:
    """Labelled images from columns of local Parquet files, or of a folder of `datasets`: encoded bytes.

    The id of an example is its part and the number of its row, from 0.

    Args:
        folder: relative name of the folder with {train,test}.parquet, or of what `save_to_disk` has written.
        image: column of the images: encoded bytes, or a struct with them as `datasets` writes it.
        label: column of the labels: whole numbers or names.
        fit: of images of several sizes: "crop" resizes the short side and takes the centre; "squash" resizes
            both sides.
        interpolation: of images of several sizes.
        crop_fraction: with "crop": side of the centre / short side after resizing. If absent, as in the
            model's training here, else images of the model's size stay as they are, and others have 0.875.
        channels: 3 for RGB, grey images with three equal channels; 1 for luminance, 0.299 R + 0.587 G +
            0.114 B.
        exif_orientation: turn images as their EXIF tag says; by default they are as stored.
    """
    parts = find_parts(root, folder, split, evaluated, splits, "image_table")
    found = labels_of(parts, label, class_names, class_names_file)
    ids = parts.chosen.ids(len(found.labels))
    rows = rows_of(parts, ids, found.labels)
    data = ImageTable(
        _Cells(parts.chosen, image, exif_orientation),
        found.class_names,
        [ids[row] for row in rows],
        [found.labels[row] for row in rows],
        rows,
        squash=fit == "squash",
        crop_fraction=crop_fraction,
        interpolation=RESAMPLING[interpolation],
    )
    if channels == 1:
        data.channels, data.mean, data.std = channels, GREY_MEAN, GREY_STD
    data.rarest_classes, data.sorted_classes = found.rarest, found.sorted_classes
    data.files_read = parts.chosen.files(len(found.labels))
    return data


class ImageTable(ListedSet):
    """Encoded images with labels, decoded on demand by as many threads as torch may use."""

    rarest_classes: Callable[[int], list[str]] | None = None
    sorted_classes = False
    files_read: list[FileRead] | None = None
    task = "classification"
    channels = 3
    mean: tuple[float, ...] = MEAN
    std: tuple[float, ...] = STD

    def __init__(
        self,
        cells: _Cells,
        class_names: tuple[str, ...],
        ids: Sequence[str],
        labels: Sequence[int],
        rows: Sequence[int],
        *,
        squash: bool,
        crop_fraction: float | None,
        interpolation: Image.Resampling,
    ) -> None:
        super().__init__("image_table", class_names, ids)
        self.labels = torch.tensor(list(labels), dtype=torch.int64)
        self._cells = cells
        self._rows = rows
        self._squash = squash
        self.crop_fraction = crop_fraction
        self._interpolation = interpolation

    @cached_property
    def size(self) -> tuple[int, int] | None:
        """(H, W) of all images, from their headers; None if it varies."""
        found: tuple[int, int] | None = None
        for row in self._rows:
            try:
                width, height = self._cells.size(row)
            except UNREADABLE as error:
                raise unreadable(self._cells.where(row), error) from error
            if found not in (None, (height, width)):
                return None
            found = (height, width)
        return found

    def images(self, indices: Sequence[int], size: int) -> Tensor:
        """Pixels in [0, 1], float32 (len(indices), C, size, size); errors as for `open_picture`.

        Square images of a common size are resized in floating point, others on 8-bit pixels.
        """
        return resize(self._decoded(indices, size).pixels(), size)

    def levels(self, indices: Sequence[int], size: int) -> Levels | None:
        """The same as levels; None where images are resized in floating point."""
        return self._decoded(indices, size) if self._square in (None, size) else None

    @property
    def _square(self) -> int | None:
        return self.size[0] if self.size is not None and self.size[0] == self.size[1] else None

    def _decoded(self, indices: Sequence[int], size: int) -> Levels:
        chosen = checked_indices(indices, len(self))
        side = self._square or checked_size(size)
        pixels = torch.empty(len(chosen), self.channels, side, side, dtype=torch.uint8)

        def fill(place: int) -> None:
            picture = self.picture(chosen[place])
            pixels[place] = pixels_of(self._fitted(picture, size) if self._square is None else picture)

        in_threads(fill, len(chosen))
        return Levels(pixels, 255)

    def picture(self, index: int) -> Image.Image:
        """The image as stored, RGB or grey at its own size; errors as for `open_picture`."""
        (chosen,) = checked_indices([index], len(self))
        return self._cells.picture(self._rows[chosen], MODES[self.channels])

    def _fitted(self, picture: Image.Image, size: int) -> Image.Image:
        if not self._squash:
            return fitted(picture, size, self.crop_fraction, self._interpolation)
        return picture if picture.size == (size, size) else picture.resize((size, size), self._interpolation)

    def content_sha256(self) -> str:
        """Hash of every id, label and encoded image (reads all of them)."""
        digest = hashlib.sha256(f"{self.name} {self.class_names}\n".encode())
        for identifier, row, label in zip(self.ids, self._rows, self.labels.tolist(), strict=True):
            content = hashlib.sha256(self._cells.encoded(row)).hexdigest()
            digest.update(f"{identifier}\0{content} {label}\n".encode())
        return digest.hexdigest()


class _Cells:
    """A part's encoded images: a few groups of rows at a time are in memory."""

    def __init__(self, table: Table, column: str, exif_orientation: bool) -> None:
        self._turned = exif_orientation
        self._table = table
        self._column = column
        self._groups: list[tuple[Path, int, int, int]] = []  # file, group, first row in file and part
        rows = 0
        for path in table.paths:
            first = 0
            for group, count in enumerate(_group_sizes(path, column)):
                self._groups.append((path, group, first, rows))
                first, rows = first + count, rows + count
        self._read = lru_cache(maxsize=4)(self._read_group)

    def encoded(self, row: int) -> bytes:
        """The bytes of an image."""
        place = self._place(row)
        cell = self._read(place)[row - self._groups[place][3]].as_py()
        content = cell.get("bytes") if isinstance(cell, dict) else cell
        if not isinstance(content, bytes):
            raise CorruptData(f"{self.where(row)} has no encoded image: paths of files are not followed")
        return content

    def picture(self, row: int, mode: str) -> Image.Image:
        """The decoded image of a row; errors as for `open_picture`."""
        content = io.BytesIO(self.encoded(row))
        return open_picture(content, self.where(row), mode=mode, exif_orientation=self._turned)

    def size(self, row: int) -> tuple[int, int]:
        """Width and height of the image of a row, from its header."""
        with Image.open(io.BytesIO(self.encoded(row))) as image:
            turned = self._turned and image.getexif().get(ORIENTATION, 1) in SIDEWAYS
            return image.size[::-1] if turned else image.size

    def where(self, row: int) -> str:
        """File, row and column of a row of the part."""
        path, _, first, before = self._groups[self._place(row)]
        return f"{path} row {first + row - before} (the first is 0), column {self._column!r}"

    def _place(self, row: int) -> int:
        return next(n for n in reversed(range(len(self._groups))) if self._groups[n][3] <= row)

    def _read_group(self, place: int) -> Any:
        path, group, _, _ = self._groups[place]
        if path.suffix.lower() != ".parquet":
            return read_columns(path, [self._column]).column(self._column)
        try:
            found = pyarrow().parquet.ParquetFile(path, memory_map=True).read_row_group(group, [self._column])
        except (OSError, pyarrow().ArrowException) as error:
            raise CorruptData(f"{path} cannot be read: {reason_of(error)}") from error
        return found.column(self._column)


def _group_sizes(path: Path, column: str) -> list[int]:
    arrow = pyarrow()
    if path.suffix.lower() not in (".parquet", ".arrow"):
        raise CorruptData(
            f"{path}: images are read from Parquet files, or from folders that datasets has saved"
        )
    if path.suffix == ".arrow":
        table = read_columns(path, [column], "image")
        kind, sizes = table.schema.field(column).type, [table.num_rows]
    else:
        check_columns(path, schema_of(path).names, [column], "image")
        kind = schema_of(path).field(column).type
        metadata = arrow.parquet.read_metadata(path)
        sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    types = arrow.types
    binary = types.is_binary(kind) or types.is_large_binary(kind)
    if not binary and not (types.is_struct(kind) and kind.get_field_index("bytes") >= 0):
        raise CorruptData(f"{path}: column {column!r} is {kind}, encoded images are wanted (bytes)")
    return sizes
