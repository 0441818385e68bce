"""CSV: the tidy form, and tables. No cell is run by a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from typing import Any

from assay.service.reports.tables import MISSING, Table
from assay.service.reports.tidy import TidyRow

COLUMNS = (
    "job", "name", "model", "weights_sha256", "seed", "data", "attack", "protocol", "metric", "part", "unit",
    "value", "ci_low", "ci_high", "ci_method", "n",
)  # fmt: skip
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")  # A spreadsheet runs such a cell as a formula


def tidy_csv(rows: Sequence[TidyRow]) -> str:
    """One row a number: `COLUMNS`, then each parameter, with `param_` before a fixed column's name."""
    params = parameter_columns(rows)
    header = [*COLUMNS, *params.values()]
    return _text(
        [header, *([*_fixed(row), *(_value(row.params.get(name)) for name in params)] for row in rows)]
    )


def parameter_columns(rows: Sequence[TidyRow]) -> dict[str, str]:
    """The column of each parameter, in the order in which they appear."""
    params = dict.fromkeys(name for row in rows for name in row.params)
    return {name: f"param_{name}" if name in COLUMNS else name for name in params}


def table_csv(table: Table) -> str:
    """A table; a value is followed by its interval in brackets."""
    lines = [
        [label, *(MISSING if cell is None else _shown(cell.value, cell.interval) for cell in cells)]
        for label, cells in table.rows
    ]
    # A missing number's dash is no formula.
    return _text(
        [[cell if cell == MISSING else inert(cell) for cell in line] for line in [table.header, *lines]]
    )


def inert(text: str) -> str:
    """The text, with an apostrophe where a spreadsheet would run it."""
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text


def compact(value: object) -> str:
    """JSON for a cell of a CSV."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _fixed(row: TidyRow) -> list[Any]:
    metric = row.metric
    texts = (row.attack, row.protocol, row.metric_name, row.part)
    return [
        *(row.job, inert(row.name), inert(row.model), row.weights_sha256 or "", row.seed, inert(row.data)),
        *map(inert, texts),
        *(metric.unit or "", metric.value, metric.ci_low, metric.ci_high, metric.ci_method, metric.n),
    ]


def _value(value: Any) -> Any:
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    return inert(value) if isinstance(value, str) else inert(compact(value))


def _shown(value: str, interval: str) -> str:
    return f"{value} [{interval}]" if interval else value


def _text(lines: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(lines)
    return text.getvalue()
