r"""LaTeX of the package booktabs, without preamble, for `\input`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from assay.service.reports.numbers import printable
from assay.service.reports.tables import Table, TableCell

SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "[": "{[}",
    "]": "{]}",
    "`": r"\textasciigrave{}",
    "\N{RIGHT SINGLE QUOTATION MARK}": "'",
    "\N{EN DASH}": "--",
    "\N{EM DASH}": "---",
    "\N{HORIZONTAL ELLIPSIS}": r"\ldots{}",
    "\N{MULTIPLICATION SIGN}": r"$\times$",
    "\N{PLUS-MINUS SIGN}": r"$\pm$",
    "\N{GREEK SMALL LETTER ALPHA}": r"$\alpha$",
    "\N{GREEK SMALL LETTER BETA}": r"$\beta$",
    "\N{GREEK SMALL LETTER EPSILON}": r"$\varepsilon$",
    "\N{GREEK SMALL LETTER SIGMA}": r"$\sigma$",
}
# Letters with accents of the Latin alphabets, which every LaTeX has.
_PLAIN = re.compile("[ -~\N{LATIN CAPITAL LETTER A WITH GRAVE}-\N{LATIN SMALL LETTER Z WITH CARON}]")


def escape_latex(text: str) -> str:
    """The text as LaTeX shows it; characters that pdfLaTeX cannot set are named, as `U+1F600`."""
    return "".join(map(_escaped, printable(text)))


def latex_table(table: Table) -> str:
    """A `tabular` and its notes below."""
    return tabular(
        table.header, [[escape_latex(label), *map(_cell, cells)] for label, cells in table.rows], table.notes
    )


def latex_texts(header: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str]) -> str:
    """A `tabular` of texts and its notes below."""
    return tabular(header, [list(map(escape_latex, row)) for row in rows], notes)


def tabular(header: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str]) -> str:
    """A `tabular` of cells that are LaTeX, under a header and above notes that are texts."""
    lines = [
        r"\begin{tabular}{l" + "r" * (len(header) - 1) + "}",
        r"\toprule",
        " & ".join(map(escape_latex, header)) + r" \\",
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
