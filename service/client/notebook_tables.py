"""Jobs as tables in notebooks; everything that users wrote is escaped."""

from __future__ import annotations

from html import escape

from assay.service.contract.results import Job
from assay.service.reports.numbers import printable, speed_text


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
        rows = (f"<tr><th>{name}</th><td>{cell_text(text)}</td></tr>" for name, text in facts.items() if text)
        return f"<table><tbody>{''.join(rows)}</tbody></table>"

    def _progress(self) -> str:
        done, total = self.progress.done, self.progress.total
        if total is None:
            return ""
        eta = self.progress.eta_seconds
        left = "" if eta is None or self.state.terminal else f", about {eta:.0f} s left"
        speed = speed_text(self.progress)
        return f"{done} of {total} {self.progress.unit}{left}{speed and f'; {speed}'}"


def cell_text(text: str) -> str:
    """The text of a cell, in HTML."""
    return escape(printable(text))
