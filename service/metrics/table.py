"""Outcome tables: the rows that the shards of an evaluation return, and their meaning.

Every evaluation and attack states its table (`TABLE`); merge, comparison, terminal and CSV ask it. Tables are
pure Python, since results are merged, compared and shown by processes that hold no tensors.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, cast, get_args, runtime_checkable

from assay.service.contract.records import Evidence
from assay.service.contract.results import (
    AnyBreakdown,
    EvaluationResult,
    Metric,
    StageBreakdown,
    Unit,
    Warning,
)
from assay.service.metrics.answers import Answers
from assay.service.metrics.paired import Pair, PairedMetrics, Rows

Units = Mapping[str, Unit]
Reasons = Mapping[str, str]


@dataclass(frozen=True)
class Column:
    """A column of outcomes."""

    name: str  # In shards and in the CSV
    optional: bool = False  # Whether outcomes of earlier versions, or with other parameters, may lack it
    # A regular expression of the names of several columns, here in the order of the first shard; `name` then
    # describes them. None for a single column
    pattern: str | None = None


def columns_of(names: str, *, optional: str = "") -> tuple[Column, ...]:
    """Columns by their names, with spaces between them."""
    return (*map(Column, names.split()), *(Column(name, optional=True) for name in optional.split()))


def units_of(**metrics: str) -> Units:
    """Units by metric, from the metrics of each unit with spaces between them; KeyError: no `Unit`."""
    known: dict[str, Unit] = {unit: unit for unit in get_args(Unit)}
    return {name: known[unit] for unit, names in metrics.items() for name in names.split()}


@dataclass(frozen=True)
class Context:
    """Input of a table beside the rows."""

    params: Mapping[str, Any] = field(default_factory=dict)  # Of the evaluation, with every default filled in
    protocol: str = "pixel"  # That of the row (`results.RowProtocol`)
    evidence: Sequence[Evidence] = ()  # The reports of the shards, in their order
    device: Mapping[str, Any] = field(default_factory=dict)  # Of the first shard, as in the provenance
    # Errors of the baseline of the mean corruption error, in [0, 1], by corruption; None without a baseline
    baseline_errors: Mapping[str, float] | None = None
    classes: int | None = None  # Of the data; None where not known

    @property
    def facts(self) -> Sequence[Mapping[str, Any]]:
        """The evidence of an analysis, with facts that its shards report."""
        return cast(Sequence[Mapping[str, Any]], self.evidence)


@dataclass(frozen=True)
class Summary:
    """The part of a row of the results that its table decides."""

    metrics: dict[str, Metric]  # By name; tables with room for one show the first
    breakdown: Sequence[AnyBreakdown] = ()  # The metrics of parts: of corruptions, stages, layers or controls
    warnings: Sequence[Warning] = ()  # Caveats beside the warnings that every evaluation can have
    plot: str | None = None  # The text of an SVG file, or None


@runtime_checkable
class OutcomeTable(Protocol):
    """The meaning of the rows of a kind of evaluation."""

    name: ClassVar[str]  # Of the table
    columns: ClassVar[tuple[Column, ...]]  # The columns that shards return, in the order of the CSV
    units: ClassVar[Units]  # Unit of each metric, metrics of the breakdown included
    # Metric to the reason why it may have no value. `summarise` may give a better one, in a warning
    # `undefined_metric` that names the metric
    undefined: ClassVar[Reasons] = {}
    seeded: ClassVar[bool] = False  # Whether equal ids are the same example only in jobs of equal seeds

    def summarise(self, rows: Rows, context: Context) -> Summary:
        """One row of the results. Raises ValueError: the rows do not fit the table."""
        ...

    def paired(self, pair: Pair) -> PairedMetrics | None:
        """The paired differences of two jobs with common examples; None for a table without paired tests."""
        del pair
        return None

    def unattacked(self, rows: Rows, context: Context) -> Answers | None:
        """The answers to unchanged examples, to be compared with a guess; None where the rows have none."""
        del rows, context
        return None


def stage_row(
    name: str, metrics: dict[str, Metric], runs: Sequence[Mapping[str, Any]], entered: int
) -> StageBreakdown:
    """A stage that so many examples entered: the sums over its runs in shards (`StageEvidence`)."""
    broken, forward, backward = (
        sum(run[count] for run in runs) for count in ("broken", "forward", "backward")
    )
    return StageBreakdown(
        stage=name,
        metrics=metrics,
        n=entered,
        broken=broken,
        forward_passes=forward,
        backward_passes=backward,
        seconds=math.fsum(run["seconds"] for run in runs),
    )


def joined(wanted: Sequence[Column], shards: Sequence[Rows]) -> dict[str, list[Any]]:
    """The columns of all shards in one, sorted by example id; an optional one if every shard has it.

    Raises ValueError: a shard lacks a column, or an example was measured twice.
    """
    names = [name for column in wanted for name in present(column, shards)]
    whole = {name: [value for shard in shards for value in shard[name]] for name in names}
    order = sorted(range(len(whole["id"])), key=whole["id"].__getitem__)
    if len(set(whole["id"])) != len(order):
        raise ValueError("an example was measured twice")
    return {name: [values[i] for i in order] for name, values in whole.items()}


def present(column: Column, shards: Sequence[Rows]) -> Iterator[str]:
    """Names of a column in all shards: none, one, or its pattern's; ValueError where it must be there."""
    if column.pattern is not None:
        yield from (name for name in (shards or [{}])[0] if re.fullmatch(column.pattern, name))
    elif all(column.name in shard for shard in shards):
        yield column.name
    elif not column.optional:
        raise ValueError(f"a shard has no column {column.name!r}")


def as_csv(rows: Rows) -> str:
    """The outcome table as text, sorted by id: booleans 0 and 1, exact floats, lists with spaces."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(rows)
    for row in zip(*rows.values(), strict=True):
        writer.writerow([_cell(value) for value in row])
    return text.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return " ".join(map(str, value))
    return int(value) if isinstance(value, bool) else value


def with_units(result: EvaluationResult, table: OutcomeTable) -> EvaluationResult:
    """The result with the unit of every metric; a metric that the table does not know stays as it is."""
    parts = [part.model_copy(update={"metrics": _stated(part.metrics, table)}) for part in result.breakdown]
    return result.model_copy(update={"metrics": _stated(result.metrics, table), "breakdown": parts})


def _stated(metrics: Mapping[str, Metric], table: OutcomeTable) -> dict[str, Metric]:
    units = table.units
    return {
        name: metric.model_copy(update={"unit": units[name]}) if name in units else metric
        for name, metric in metrics.items()
    }
