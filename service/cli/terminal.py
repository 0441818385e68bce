"""Tables on a terminal, in colours with rich from the extra `cli`; NO_COLOR and pipes have none."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Collection, Mapping, Sequence
from itertools import zip_longest
from operator import itemgetter
from typing import TYPE_CHECKING, TextIO

from assay.service.fitted_text import GAP, columns, fitted

if TYPE_CHECKING:
    from rich.console import Console

# States of jobs, studies, workers, checkpoints and keys.
STATES: Mapping[str, str] = {
    **dict.fromkeys(("waiting", "queued"), "dim"),
    **dict.fromkeys(("starting", "running", "checking"), "cyan"),
    **dict.fromkeys(("succeeded", "ready", "works", "online"), "green"),
    **dict.fromkeys(("canceled", "canceling", "cordoned", "expired", "offline"), "yellow"),
    **dict.fromkeys(("failed", "timed_out", "rejected", "revoked", "unfit", "error:"), "bold red"),
}
# Cells of up to so many characters are wrapped only where the terminal is too narrow: an interval, a name.
SHORT = 24
COLUMNS: Mapping[str, str] = {"VALUE": "bold", "WARNINGS": "yellow"}
LONGEST = {"NAME": 40}  # Words of a column that are longer, such as a job's name without spaces, are broken.
# Columns that leave a narrow terminal, the first first: most are left out, and the texts of `BELOW` stand in
# a line below their row. All other columns stay.
DROPPED = (
    *("SHA256", "TYPE", "BYTES", "WARNINGS", "TEST", "BEFORE", "EVENTS", "ATTEMPTS", "SUMMARY", "P"),
    *("CREATED", "KIND", "SEEDS", "ARMS", "JOBS", "MODEL", "PARAMETERS", "PARAMS", "NAME"),
    *("DONE", "N", "CONDITION", "A", "B"),
)
BELOW = ("CONDITION", "PARAMETERS", "PARAMS", "NAME")


def console_of(stream: TextIO) -> Console | None:
    """A console that draws on a terminal; None for pipes, NO_COLOR, dumb terminals, and without rich."""
    if not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None

    return Console(file=stream, highlight=False, markup=False, emoji=False)


def coloured(text: str, stream: TextIO | None = None) -> str:
    """The text in the colour of the state that it names; on anything but a terminal the text itself."""
    console = console_of(stream or sys.stdout) if text in STATES else None
    if console is None:
        return text
    with console.capture() as written:
        console.print(text, style=STATES[text], end="")
    return written.get()


def terminal_table(
    stream: TextIO, header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool]
) -> str:
    """A table as wide as the terminal: texts are wrapped, between words that fit, and no cell is cut.

    Where that does not suffice, columns of `DROPPED` leave; where that does not suffice either, each row is a
    block with a line per column.
    """
    console, width = console_of(stream), columns(stream)
    cells = {name: [name, *(row[place] for row in rows)] for place, name in enumerate(header)}
    right_aligned = {name for name, to_right in zip(header, right, strict=True) if to_right}
    shown = dict(cells)
    for name in DROPPED:
        if _total(_least(shown)) <= width or len(shown) == 1:
            break
        shown.pop(name, None)
    if _total(_least(shown)) > width:
        return _blocks(width, header, rows)
    below = [name for name in header if name in BELOW and name not in shown]
    widths = _widths(shown, width)
    lines = []
    for number in range(len(rows) + 1):
        parts = {name: _wrapped(texts[number], widths[name], name) for name, texts in shown.items()}
        for place in range(max(map(len, parts.values()))):
            line = [
                _padded(
                    console,
                    part[place] if place < len(part) else "",
                    widths[name],
                    name,
                    number,
                    right_aligned,
                )
                for name, part in parts.items()
            ]
            lines.append(GAP.join(line).rstrip())
        for name in below if number else ():
            texts = _wrapped(cells[name][number], width - len(GAP), name)
            lines += [f"{GAP}{text}" for text in texts if text]
    if left_out := [name for name in header if name not in shown and name not in below]:
        lines.append(fitted(f"left out at {width} columns: {', '.join(left_out)} (a pipe has all)", stream))
    return "\n".join(lines)


def _padded(
    console: Console | None, text: str, width: int, name: str, number: int, right_aligned: Collection[str]
) -> str:
    style = STATES.get(text, COLUMNS.get(name, "")) if number else "bold"
    space = " " * (width - len(text))
    drawn = _styled(console, text, style)
    return space + drawn if name in right_aligned else drawn + space


def _styled(console: Console | None, text: str, style: str) -> str:
    if console is None or not (text and style):
        return text
    with console.capture() as written:
        console.print(text, style=style, end="", soft_wrap=True)
    return written.get()


def _wrapped(text: str, width: int, name: str) -> list[str]:
    return textwrap.wrap(text, width, break_long_words=name in LONGEST, break_on_hyphens=False) or [""]


def _least(shown: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """The width of the longest word of each column; a state or a number with its unit is a word."""
    words = {
        name: [word for cell in cells for word in (cell.split() if len(cell) > SHORT else [cell]) or [""]]
        for name, cells in shown.items()
    }
    return {name: min(max(map(len, found)), LONGEST.get(name, sys.maxsize)) for name, found in words.items()}


def _total(widths: Mapping[str, int]) -> int:
    return sum(widths.values()) + len(GAP) * (len(widths) - 1)


def _widths(shown: Mapping[str, Sequence[str]], most: int) -> dict[str, int]:
    widths, least = {name: max(map(len, cells)) for name, cells in shown.items()}, _least(shown)
    while (excess := _total(widths) - most) > 0:
        widest = max((name for name in widths if widths[name] > least[name]), key=lambda name: widths[name])
        others = [width for name, width in widths.items() if name != widest and width > least[name]]
        widths[widest] = max(
            widths[widest] - excess, least[widest], min(max(others, default=0), widths[widest] - 1)
        )
    return widths


def _blocks(width: int, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    label = max(map(len, header)) + len(GAP)
    blocks = []
    for row in rows:
        lines = []
        for name, cell in filter(itemgetter(1), zip(header, row, strict=True)):
            wrapped = _wrapped(cell, max(width - label, SHORT), name)
            lines += [f"{head:<{label}}{text}" for head, text in zip_longest([name], wrapped, fillvalue="")]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) or GAP.join(header)
