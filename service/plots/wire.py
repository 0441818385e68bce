"""Plots as `GET /jobs/{id}/plots` lists them."""

from __future__ import annotations

from typing import Literal

from assay.service.contract.results import Answer

PlotFormat = Literal["svg", "png", "pdf", "vl.json"]


class PlotSummary(Answer):
    """A plot of a job: `description` says its main numbers, `href` (SVG) takes `format` and `scheme`."""

    kind: str
    title: str
    description: str
    href: str
