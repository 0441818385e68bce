from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from assay.service.reports.formats.latex import escape_latex, latex_table
from assay.service.reports.tables import Table, TableCell

HOSTILE = '\\ { } $ & # ^ _ ~ % < > | " ` [x] é ß \u03b5 \u2013 \U0001f600 \u0645 \x1b'
TABLE = Table(
    ["attack", HOSTILE, "second"],
    [
        ("[1] clean", [TableCell("97.5 %", "95.3, 98.7", bold=True), None]),
        (HOSTILE, [TableCell("-", "too few examples"), TableCell("28460", "")]),
        ("\\input{/etc/passwd}", [None, TableCell("12.5", "12, 13")]),
    ],
    ["n: 360", HOSTILE],
)


def test_everything_is_escaped() -> None:
    assert escape_latex("\\{}$&#^_~%") == (
        r"\textbackslash{}\{\}\$\&\#\textasciicircum{}\_\textasciitilde{}\%"
    )
    assert escape_latex("a\x1bb \U0001f600") == r"a\textbackslash{}x1bb U+1F600"


def test_cells() -> None:
    lines = latex_table(TABLE).splitlines()
    assert lines[4] == r"{[}1{]} clean & \textbf{97.5\,\%} {\scriptsize [95.3, 98.7]} & -- \\"
    assert lines[-1].startswith(r"\parbox{\linewidth}{\footnotesize n: 360. ")


@pytest.mark.slow
def test_latex_compiles(tmp_path: Path) -> None:
    program = shutil.which("pdflatex")
    if program is None:
        pytest.skip("pdflatex is not installed")
    (tmp_path / "table.tex").write_text(latex_table(TABLE), encoding="utf-8")
    (tmp_path / "paper.tex").write_text(
        "\\documentclass{article}\\usepackage{booktabs}\\begin{document}\n\\input{table}\n\\end{document}\n"
    )
    command = [program, "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "paper.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "paper.pdf").stat().st_size > 10_000
