"""How large reports to a request may be, by its shard's plan."""

from __future__ import annotations

from assay.service.files.json_bounds import JsonBounds
from assay.service.submission.plan_faults import MAX_SHARDS

MIB = 1 << 20
# Of any report: evidence, provenance, messages, facts of the data, lists of layers.
BASE_BYTES, BASE_VALUES, BASE_CONTAINERS = 16 * MIB, 1_000_000, 100_000
ROW_BYTES, CELL_BYTES = 128, 32  # Of an example: its id, and each column
# Of a package's table that is missing here, and columns named by patterns.
MAX_COLUMNS, PATTERN_COLUMNS = 64, 32
PIXELS_BYTES = 12  # A number of pixels in a list by class
MAX_HELD_OUT = 250_000  # Held-out examples of a training, stated by no plan
SHARD_VALUES, SHARD_BYTES = 5, 200
SMALL_BYTES = MIB  # Answers of a few lines
SMALL = JsonBounds(SMALL_BYTES, SMALL_BYTES // 16, SMALL_BYTES // 64)


def bounds_of(kind: str, rows: int, columns: int, classes: int = 0) -> JsonBounds:
    """Bounds of the answer to a request, and of all reports before it.

    `rows`: a training has at most `MAX_HELD_OUT`. `classes`: of label maps with counts; 0 otherwise.
    """
    if kind in ("self_test", "hash", "check"):
        return SMALL
    if kind == "plan":
        return _more_than_base(MAX_SHARDS * SHARD_BYTES, MAX_SHARDS * SHARD_VALUES, MAX_SHARDS)
    cells = rows * columns
    pixels = cells * classes
    size = rows * ROW_BYTES + cells * CELL_BYTES + pixels * PIXELS_BYTES
    return _more_than_base(size, cells + pixels, cells if classes else 0)


def _more_than_base(size: int, values: int, containers: int) -> JsonBounds:
    return JsonBounds(BASE_BYTES + size, BASE_VALUES + values, BASE_CONTAINERS + containers)
