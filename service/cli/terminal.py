"""Colours on a terminal, by rich from the extra `cli`; no colours elsewhere, nor with NO_COLOR."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

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
# Cells of up to so many characters are not wrapped: an interval, a name.
SHORT = 24
COLUMNS: Mapping[str, str] = {"VALUE": "bold", "WARNINGS": "yellow"}


def console_of(stream: TextIO) -> Console | None:
    """A console that draws on a terminal; None for pipes and files, with NO_COLOR, and without rich."""
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb" or not stream.isatty()
    if plain:
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


def coloured_table(
    console: Console, header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool]
) -> str:
    """A table as wide as the terminal: texts with spaces are wrapped, and no cell is cut."""
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for place, (name, to_right) in enumerate(zip(header, right, strict=True)):
        cells = [name, *(row[place] for row in rows)]
        wraps = any(len(cell) > SHORT and " " in cell for cell in cells)
        words = [word for cell in cells for word in (cell.split() if wraps else [cell])]
        table.add_column(
            Text(name),
            justify="right" if to_right else "left",
            style=COLUMNS.get(name, ""),
            overflow="fold",
            no_wrap=not wraps,
            min_width=max(map(len, words), default=0),
        )
    for row in rows:
        table.add_row(*(Text(cell, STATES.get(cell, "")) for cell in row))
    # A terminal that is too narrow for the longest words wraps the lines, as it wraps plain text.
    least = Measurement.get(console, console.options.update(max_width=10_000), table).minimum
    console.width = max(console.width, least)
    with console.capture() as written:
        console.print(table, crop=False)
    return "\n".join(line.rstrip() for line in written.get().splitlines())
