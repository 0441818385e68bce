"""Plots of a report, as pictures inside the page."""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.service.plots.render import RenderError, render
from assay.service.plots.sizes import page_width
from assay.service.plots.theme import Scheme, Vega

SCHEMES: Sequence[Scheme] = ("light", "dark")
logger = logging.getLogger(__name__)
DrawFigure = Callable[[Vega, Scheme, bool], bytes]


@dataclass(frozen=True)
class Figure:
    """A plot as data addresses of SVG, light and dark; `description` is for screen readers."""

    kind: str
    title: str
    description: str
    light: str
    dark: str
    width: int  # in a page, pixels
    phone: Sequence[str] = ()  # light and dark for a phone; the first plot alone has them


def figures(
    specs: Mapping[str, Vega], cache: Path | None = None, draw: DrawFigure | None = None
) -> tuple[list[Figure], list[str]]:
    """Plots drawn by `draw` (default: `service.plots`), the first for phones too; a note for each failure."""

    def rendered(spec: Vega, scheme: Scheme, narrow: bool) -> bytes:
        return render(spec, "svg", scheme=scheme, narrow=narrow, cache=cache)

    found: list[Figure] = []
    notes = []
    for kind, spec in specs.items():
        drawn: list[bytes] = []
        try:
            for narrow in (False, True) if not found else (False,):
                drawn += [(draw or rendered)(spec, scheme, narrow) for scheme in SCHEMES]
        except (RenderError, OSError) as error:
            logger.warning("the plot %s of a report: %s", kind, error)
            notes.append(f"the plot {kind} could not be drawn now{' for a phone' if drawn else ''}")
        if not drawn:
            continue
        described = str(spec.get("description", ""))
        light, dark, *phone = map(_address, drawn)
        found.append(Figure(kind, _title(spec, kind), described, light, dark, page_width(drawn[0]), phone))
    return found, notes


def picture(title: str, svg: bytes) -> Figure:
    """A drawn plot, in colours that follow the reader's scheme."""
    address, described = _address(svg), f"{title}; its numbers are in the tables of the results"
    return Figure(title, title, described, address, address, page_width(svg))


def _title(spec: Vega, kind: str) -> str:
    title = spec.get("title", kind)
    text = title.get("text", kind) if isinstance(title, Mapping) else title
    return " ".join(map(str, text)) if isinstance(text, list) else str(text)


def _address(svg: bytes) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"
