"""Sentences no wider than the terminal that shows them."""

from __future__ import annotations

import os
import re
import sys
import textwrap
from typing import TextIO

GAP = "  "
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
HARD = "\0"  # a space at which no line is broken
USUAL = 80  # columns, of a terminal that does not say it


def say(text: str, indent: int | None = None) -> None:
    """Writes a text and a line's end to standard output, fitted."""
    sys.stdout.write(f"{fitted(text, sys.stdout, indent)}\n")


def tell(text: str) -> None:
    """As `say`, to standard error."""
    sys.stderr.write(f"{fitted(text, sys.stderr)}\n")


def fitted(text: str, stream: TextIO, indent: int | None = None) -> str:
    """The text with its long lines wrapped between words on a terminal; the text itself elsewhere.

    Commands within backticks and percentages are kept whole. `indent`: of what is wrapped, by default two
    columns more than the line has.
    """
    if not stream.isatty():
        return text
    width = columns(stream)
    return "\n".join(
        part
        for line in text.split("\n")
        for part in ([line] if len(COLOUR.sub("", line)) <= width else _between_words(line, width, indent))
    )


def columns(stream: TextIO) -> int:
    """The width of a terminal: COLUMNS, else what the terminal says."""
    stated = os.environ.get("COLUMNS", "")
    if stated.isdecimal() and int(stated) > 0:
        return int(stated)
    try:
        return os.get_terminal_size(stream.fileno()).columns or USUAL
    except (OSError, ValueError):  # a terminal without a file
        return USUAL


def _between_words(line: str, width: int, indent: int | None) -> list[str]:
    own = len(line) - len(line.lstrip()) + len(GAP)
    whole = re.sub(r"`[^`]*`|\d %", lambda code: code[0].replace(" ", HARD), line)
    wrapped = textwrap.wrap(
        whole,
        width,
        subsequent_indent=" " * max(own, indent or 0),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [part.replace(HARD, " ") for part in wrapped]
