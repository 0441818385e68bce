"""Plots as `GET /jobs/{id}/plots` lists them."""

from __future__ import annotations

from typing import Literal

from assay.service.contract.results import Answer

PlotFormat = Literal["svg", "png", "pdf", "vl.json"]


class PlotSummary(Answer):
    """A plot of a job, its main numbers in words, and its SVG, `href`, which takes `format` and `scheme`."""

    kind: str
    title: str
    description: str
    href: str
