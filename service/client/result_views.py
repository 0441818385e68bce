"""Results as Python looks at them: rows by name, metrics as attributes, a table in notebooks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from html import escape
from typing import Any

from assay.service.contract.problems import nearest
from assay.service.contract.results import EvaluationResult, Metric, Results
from assay.service.contract.warning_codes import SEVERITIES
from assay.service.reports.numbers import metric_cells, params_text, row_params

RADIUS = "epsilon"  # A row's parameter that `results["pgd", "8/255"]` names.


class EvaluationView(EvaluationResult):
    """One row of the results; its metrics are attributes too: `row.top1.value`."""

    def __getattr__(self, name: str) -> Metric:
        # Only for names that are no fields; pydantic looks its private names up here too.
        if not name.startswith("_") and name in (metrics := self.__dict__.get("metrics", {})):
            metric: Metric = metrics[name]
            return metric
        if name.startswith("_"):
            raise AttributeError(name)
        near = nearest(name, list(metrics))
        hint = f"; did you mean {near!r}?" if near else ""
        raise AttributeError(f"{self.name} has no metric {name!r}; it has {', '.join(metrics)}{hint}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.metrics]


class ResultsView(Results):
    """Results of a job: `results["pgd", "8/255"].top1` is a metric with its interval."""

    evaluations: Sequence[EvaluationView]  # type: ignore[assignment]

    def __getitem__(self, key: str | tuple[str, Any]) -> EvaluationView:
        """The row by name, or name and epsilon ("8/255") or parameters; KeyError: none or several."""
        name, wanted = key if isinstance(key, tuple) else (key, {})
        params = wanted if isinstance(wanted, Mapping) else {RADIUS: wanted}
        named = [row for row in self.evaluations if row.name == name]
        if not named:
            names = list(dict.fromkeys(row.name for row in self.evaluations))
            near = nearest(name, names)
            hint = f"; did you mean {near!r}?" if near else ""
            raise KeyError(f"no evaluation {name!r}; there are {', '.join(names) or 'none yet'}{hint}")
        found = [row for row in named if all(_same(row.params.get(k), v) for k, v in params.items())]
        if len(found) == 1:
            return found[0]
        said = params_text(params)
        shown = "; ".join(params_text(row_params(row)) or "no parameters" for row in named)
        count = f"{len(found)} rows of {name!r} fit" if found else f"no row of {name!r} fits"
        raise KeyError(f"{count}{f' {said}' if said else ''}; there are: {shown}")

    def __len__(self) -> int:
        return len(self.evaluations)

    def _repr_html_(self) -> str:
        rows = [
            (
                row.name,
                params_text({RADIUS: row_params(row)[RADIUS]}) if row.params.get(RADIUS) else "",
                name,
                metric,
            )
            for row in self.evaluations
            for name, metric in row.metrics.items()
        ]
        head = "".join(
            f"<th>{name}</th>" for name in ("evaluation", "", "metric", "value", "95 % interval", "n")
        )
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in (*texts, *metric_cells(metric))) + "</tr>"
            for *texts, metric in rows
        )
        found = [*self.warnings, *(warning for row in self.evaluations for warning in row.warnings)]
        lines = dict.fromkeys(
            f"<li><b>{warning.severity}</b> <code>{warning.code}</code> {escape(warning.message)}</li>"
            for warning in sorted(found, key=lambda warning: SEVERITIES.index(warning.severity))
        )
        state = "" if self.complete else "<p><b>Not complete.</b></p>"
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return f"{state}{table}<ul>{''.join(lines)}</ul>"


def _same(given: Any, wanted: Any) -> bool:
    if given == wanted:
        return True
    try:
        return math.isclose(_number(given), _number(wanted), rel_tol=1e-3)
    except (TypeError, ValueError, ZeroDivisionError):
        return False


def _number(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError
    return float(Fraction(value)) if isinstance(value, str) else float(value)
