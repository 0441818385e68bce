"""The Python client's calls for plots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from assay.service.client.transport import API, Connection, parsed, part
from assay.service.contract.plots import PlotFormat, PlotSummary
from assay.service.contract.results import Page


class PlotCalls(Connection):
    """Lists and fetches plots."""

    def plots(self, job_id: str) -> list[PlotSummary]:
        """The plots that the results of the job allow, each with its main numbers in words."""
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
        """A plot of a job, or of up to ten in one, as the content of a file; `plots` lists the kinds.

        `format` is "svg", "png", "pdf", or "vl.json" for the Vega-Lite specification with its data; `scheme`
        is of the colours.

        Raises:
            NotFound: there is no such job, or no such kind of plot.
            NoResults: the results do not allow this plot.
        """
        ids = jobs if isinstance(jobs, str) else ",".join(jobs)
        params = {"jobs": ids, "format": format, "scheme": scheme}
        return self._call("GET", f"{API}/plots/{part(kind)}", params=params).content
