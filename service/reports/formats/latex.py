r"""LaTeX of the package booktabs, without preamble, for `\input`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from assay.service.reports.numbers import printable
from assay.service.reports.tables import Table, TableCell

SPECIAL: dict[str, str] = json.loads(Path(__file__).with_name("latex.json").read_text(encoding="utf-8"))
# Latin letters with accents, which every LaTeX has.
_PLAIN = re.compile("[ -~\N{LATIN CAPITAL LETTER A WITH GRAVE}-\N{LATIN SMALL LETTER Z WITH CARON}]")


MAX_HEAD = 60  # Longer heads break into lines, in columns as wide as the text together
SHARE_OF_LABELS = 0.22


def escape_latex(text: str) -> str:
    """The text in LaTeX; characters that pdfLaTeX lacks are named, as `U+1F600`."""
    return "".join(map(_escaped, printable(text)))


def latex_table(table: Table) -> str:
    """A `tabular` and its notes; columns with long heads share the text's width, and break lines."""
    rows = [[escape_latex(label), *map(_cell, cells)] for label, cells in table.rows]
    heads = table.header[1:]
    if max(map(len, heads), default=0) <= MAX_HEAD:
        return tabular(table.header, rows, table.notes)
    rows = [[_breakable(label), *cells[1:]] for (label, _), cells in zip(table.rows, rows, strict=True)]
    first, others = (
        rf"p{{\dimexpr{share:.3f}\linewidth-2\tabcolsep\relax}}"
        for share in (SHARE_OF_LABELS, (1 - SHARE_OF_LABELS) / len(heads))
    )
    return tabular(table.header, rows, table.notes, first=first, others=others)


def latex_differences(header: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str]) -> str:
    """A comparison as wide as an article's text, with notes below.

    Evaluation, parameters and metric share a column; the tests' names, heads of the last columns, are among
    the notes.
    """
    shown = ["Evaluation", *header[3:-3], "p", "Adjusted p"]
    lines = [[_breakable(" ".join(filter(None, row[:3]))), *map(escape_latex, row[3:-1])] for row in rows]
    tests = [f"Columns p and adjusted p: {header[-3]}; {header[-2]}"]
    return tabular(shown, lines, [*notes, *tests], first=r"p{0.19\linewidth}")


def _breakable(text: str) -> str:
    """LaTeX with line breaks also within long words, such as names and ids."""
    pieces = re.split(r"(?<=[_=,(])|(?<=\w{6})(?=\w{3})", text)
    return rf"{{\raggedright {(chr(92) + 'allowbreak{}').join(map(escape_latex, pieces))}\par}}"


def tabular(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    notes: Sequence[str],
    *,
    first: str = "l",
    others: str = "r",
) -> str:
    """A `tabular` of LaTeX cells, between a header and notes."""
    lines = [
        r"\begin{tabular}{" + first + others * (len(header) - 1) + "}",
        r"\toprule",
        " & ".join(map(escape_latex if others == "r" else _breakable, header)) + r" \\",
        r"\midrule",
        *(" & ".join(row) + r" \\" for row in rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    if notes:
        text = ". ".join(map(escape_latex, notes))
        lines += ["", r"\smallskip", rf"\parbox{{\linewidth}}{{\footnotesize {text}.}}"]
    return "\n".join(lines) + "\n"


def _cell(cell: TableCell | None) -> str:
    if cell is None:
        return "--"
    value = escape_latex(cell.value).replace(r" \%", r"\,\%")
    value = rf"\textbf{{{value}}}" if cell.bold else value
    return f"{value} {{\\scriptsize [{escape_latex(cell.interval)}]}}" if cell.interval else value


def _escaped(character: str) -> str:
    if character in SPECIAL:
        return SPECIAL[character]
    return character if _PLAIN.fullmatch(character) else f"U+{ord(character):04X}"
