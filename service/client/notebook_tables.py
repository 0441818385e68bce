"""Jobs and results of studies as tables in notebooks; everything that users wrote is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from assay.service.contract.results import Job
from assay.service.reports.numbers import RADIUS, number, params_text, printable, row_params, speed_text
from assay.service.studies.result_wire import ArmValue, StudyCell, StudyComparison, StudyResults


class JobView(Job):
    """A job; its facts are a table in notebooks."""

    def _repr_html_(self) -> str:
        facts = {
            "job": self.id,
            "name": self.name,
            "tags": ", ".join(self.tags),
            "kind": self.kind,
            "state": self.state.value,
            "progress": self._progress(),
            "message": self.message,
            "error": "" if self.error is None else f"{self.error.type}: {self.error.message}",
            "model": str(self.spec.get("model", {}).get("name", "")),
            "data": str(self.spec.get("data", {}).get("name", "")),
        }
        rows = (f"<tr><th>{name}</th><td>{_text(text)}</td></tr>" for name, text in facts.items() if text)
        return f"<table><tbody>{''.join(rows)}</tbody></table>"

    def _progress(self) -> str:
        done, total = self.progress.done, self.progress.total
        if total is None:
            return ""
        eta = self.progress.eta_seconds
        left = "" if eta is None or self.state.terminal else f", about {eta:.0f} s left"
        speed = speed_text(self.progress)
        return f"{done} of {total} {self.progress.unit}{left}{speed and f'; {speed}'}"


class StudyResultsView(StudyResults):
    """Results of a study; the tested metrics are a table in notebooks."""

    def _repr_html_(self) -> str:
        others = [arm for arm in self.arms if arm != self.baseline]
        head = ["evaluation", "metric", *self.arms]
        head += [text for arm in others for text in (f"{arm} less {self.baseline}", "adjusted p")]
        rows = [self._row(cell, others) for cell in self.cells if cell.tested]
        state = "" if self.complete else f"<p><b>Not complete: {len(self.missing)} runs are missing.</b></p>"
        body = "".join(f"<tr>{_cells('td', row)}</tr>" for row in rows)
        table = f"<table><thead><tr>{_cells('th', head)}</tr></thead><tbody>{body}</tbody></table>"
        seeds = f"seeds: {', '.join(map(str, self.seeds))}; {self.tests} p-values, adjusted by {self.adjust}"
        notes = (*self.notes, *(warning.message for warning in self.warnings))
        listed = "".join(f"<li>{_text(note)}</li>" for note in dict.fromkeys(notes))
        return f"{state}{table}<p>{_text(seeds)}</p>{f'<ul>{listed}</ul>' if listed else ''}"

    def _row(self, cell: StudyCell, others: Sequence[str]) -> list[str]:
        values = {value.arm: value for value in cell.arms}
        differences = {found.arm: found for found in cell.comparisons}
        params = row_params(cell)
        named = {RADIUS: params[RADIUS]} if params.get(RADIUS) else params
        texts = [f"{cell.evaluation} {params_text(named)}".strip(), cell.metric]
        texts += [_mean(values.get(arm), cell) for arm in self.arms]
        for arm in others:
            texts += _difference(differences.get(arm), cell)
        return texts


def _mean(value: ArmValue | None, cell: StudyCell) -> str:
    if value is None:
        return "-"
    spread = "" if value.sd is None else f" ± {number(value.sd, cell.unit)}"
    return number(value.mean, cell.unit) + spread


def _difference(found: StudyComparison | None, cell: StudyCell) -> list[str]:
    if found is None:
        return ["-", "-"]
    ends = [number(end, cell.unit, sign=True) for end in (found.ci_low, found.ci_high) if end is not None]
    interval = f" [{', '.join(ends)}]" if ends else ""
    p = "-" if found.test is None else f"{found.test.adjusted_p_value:.2g}"
    return [number(found.difference, cell.unit, sign=True) + interval, p]


def _cells(tag: str, texts: Iterable[str]) -> str:
    return "".join(f"<{tag}>{_text(text)}</{tag}>" for text in texts)


def _text(text: str) -> str:
    return escape(printable(text))
