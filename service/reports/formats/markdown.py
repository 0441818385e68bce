"""Markdown tables."""

from __future__ import annotations

from collections.abc import Sequence

from assay.service.reports.markdown_text import escape_markdown
from assay.service.reports.numbers import printable
from assay.service.reports.tables import MISSING, Table, TableCell


def markdown_table(table: Table) -> str:
    """A table, then a list of its notes."""
    rows = [[_text(label), *map(_cell, cells)] for label, cells in table.rows]
    return "\n".join([*_lines(list(map(_text, table.header)), rows), "", *_notes(table.notes)]) + "\n"


def markdown_texts(header: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str]) -> str:
    """A table of texts, then a list of its notes."""
    found = [list(map(_text, row)) for row in rows]
    return "\n".join([*_lines(list(map(_text, header)), found), "", *_notes(notes)]) + "\n"


def markdown_list(texts: Sequence[str]) -> str:
    """A list of texts."""
    return "\n".join(_notes(texts)) + "\n"


def _lines(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(row)} |" for row in (header, *rows)]
    return [lines[0], "|" + " --- |" + " ---: |" * (len(header) - 1), *lines[1:]]


def _notes(texts: Sequence[str]) -> list[str]:
    return [f"- {_text(text)}" for text in texts]


def _cell(cell: TableCell | None) -> str:
    if cell is None:
        return MISSING
    value = f"**{_text(cell.value)}**" if cell.bold else _text(cell.value)
    return f"{value} [{_text(cell.interval)}]" if cell.interval else value


def _text(text: str) -> str:
    return escape_markdown(printable(text))
