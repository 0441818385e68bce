"""Plots as `GET /jobs/{id}/plots` lists them."""

from __future__ import annotations

from typing import Literal

from assay.service.contract.results import Answer

PlotFormat = Literal["svg", "png", "pdf", "vl.json"]


class PlotSummary(Answer):
    """A plot that the results of a job allow.

    `description` says its main numbers in words; `href` is its SVG, and takes `format` and `scheme`.
    """

    kind: str
    title: str
    description: str
    href: str
