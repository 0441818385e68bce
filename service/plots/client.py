"""The Python client's calls for plots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from assay.service.client.transport import API, Connection, parsed, part
from assay.service.contract.results import Page
from assay.service.plots.wire import PlotFormat, PlotSummary


class PlotCalls(Connection):
    """Lists and fetches plots."""

    def plots(self, job_id: str) -> list[PlotSummary]:
        """The plots that the job's results allow, each with its main numbers in words."""
        page = self._json("GET", f"{API}/jobs/{part(job_id)}/plots")
        return parsed(Page[PlotSummary], page).items

    def plot(
        self,
        jobs: str | Sequence[str],
        kind: str,
        *,
        format: PlotFormat = "svg",  # noqa: A002 (the contract's name)
        scheme: Literal["light", "dark"] = "light",
    ) -> bytes:
        """A plot of a job, or of up to ten jobs together, as a file's content; `plots` lists the kinds.

        `format`: "svg", "png", "pdf", or "vl.json" for the Vega-Lite specification with its data. NotFound:
        no such job or kind; NoResults: the results do not allow it.
        """
        ids = jobs if isinstance(jobs, str) else ",".join(jobs)
        params = {"jobs": ids, "format": format, "scheme": scheme}
        return self._call("GET", f"{API}/plots/{part(kind)}", params=params).content
