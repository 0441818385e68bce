"""The Python client's calls for reports and tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from assay.service.client.transport import API, Connection
from assay.service.contract.problems import Problems
from assay.service.metrics.statistics.multiple_tests import Adjustment

JobIds = str | Sequence[str]
ENDINGS = ("html", "md", "tex", "csv")
SECONDS = 900.0  # comparing ten jobs of many examples takes minutes


def report_format(target: Path, field: str, *more: str) -> str:
    """The format of a report by the ending of its file; `more` endings are told of, and done elsewhere."""
    ending = target.suffix.removeprefix(".")
    if ending not in ENDINGS:
        problems = Problems()
        allowed = ", ".join(f".{name}" for name in (*ENDINGS, *more))
        problems.add((field,), "its ending says the format", given=str(target), allowed=allowed)
        problems.raise_if_any()
    return ending


class ReportCalls(Connection):
    """Fetches reports and tables of several jobs."""

    def report(
        self,
        jobs: JobIds | None = None,
        *,
        tag: str | None = None,
        format: str = "html",  # noqa: A002 (the contract's name)
        adjust: Adjustment = "holm",
    ) -> str:
        """A report on one to ten jobs; as CSV, a row for each number of up to 200 jobs.

        `tag`: all jobs with this tag and results. `format`: "html" (one page with plots), "md", "tex" or
        "csv"; `adjust`: for the number of tests. Raises InvalidSpec: too many jobs, or neither ids nor tag;
        NoResults.
        """
        params = {**_choice(jobs, tag), "format": format, "adjust": adjust}
        return self._call("GET", f"{API}/report", params=params, timeout=SECONDS).text

    def table(
        self,
        jobs: JobIds | None = None,
        *,
        tag: str | None = None,
        rows: str = "attack",
        columns: str = "model",
        metric: str | None = None,
        format: str = "md",  # noqa: A002 (the contract's name)
        adjust: Adjustment = "holm",
    ) -> str:
        """A table of up to 200 jobs, each value with its interval, bold by p-values under `adjust`.

        `tag`: all jobs with this tag and results. `rows`, `columns`: attack, model, data, protocol, metric,
        part, seed, name, job, or a parameter. Without a metric: each evaluation's first. `format`: "md",
        "tex", "csv" or "html". Raises InvalidSpec: unknown field or metric, or too many jobs; NoResults.
        """
        chosen = {} if metric is None else {"metric": metric}
        params = {**_choice(jobs, tag), "rows": rows, "columns": columns, **chosen}
        # Services of earlier versions know "latex" alone.
        params |= {"format": "latex" if format == "tex" else format, "adjust": adjust}
        return self._call("GET", f"{API}/table", params=params, timeout=SECONDS).text


def _choice(jobs: JobIds | None, tag: str | None) -> dict[str, str]:
    given = {} if jobs is None else {"jobs": jobs if isinstance(jobs, str) else ",".join(jobs)}
    return given if tag is None else {**given, "tag": tag}
