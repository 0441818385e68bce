from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from assay.service.reports.formats.latex import escape_latex, latex_differences, latex_table
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


def overfull(tmp_path: Path, begin: str, table: str) -> list[str]:
    """What pdfLaTeX says is too wide in a table of an article."""
    program = shutil.which("pdflatex")
    if program is None:
        pytest.skip("this needs pdflatex")
    text = (
        rf"\documentclass{{article}}\usepackage{{booktabs}}\begin{{document}}{begin}{table}"
        r"\end{table}\end{document}"
    )
    (tmp_path / "page.tex").write_text(text)
    command = [program, "-interaction=nonstopmode", "-halt-on-error", "page.tex"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=100)
    return [
        line
        for line in (tmp_path / "page.log").read_text(errors="replace").splitlines()
        if "Overfull" in line
    ]


@pytest.mark.slow
@pytest.mark.parametrize("models", [2, 3, 5])
def test_long_heads_fit_into_the_text_of_an_article(tmp_path: Path, models: int) -> None:
    head = "rgb:build, image_folder(crop_fraction=1.0, folder=photos), 01m8bxr69dsjjc6xx4pd5z06b6"
    cells: list[TableCell | None] = [
        TableCell("100.0 %", "83.9, 100.0"),
        None,
        TableCell("5.0 %", "1.0, 9.0"),
    ]
    rows = [("uniform_noise epsilon=8/255", (cells * 2)[:models]), ("clean", (cells * 2)[:models])]
    table = latex_table(Table(["attack", *[head] * models], rows, ["a note"]))
    begin = r"\begin{table}[htbp]\centering\footnotesize\setlength{\tabcolsep}{4pt}"
    assert not overfull(tmp_path, begin, table)


@pytest.mark.slow
def test_a_comparison_fits_into_the_text_of_an_article(tmp_path: Path) -> None:
    values = ("50.0 %", "75.0 %", "+25.0 %", "[-10.0 %, +60.0 %]", "0.0312", "0.0625", "McNemar")
    row = ("pgd", "epsilon=2/255 steps=10", "attack_success_rate", "B - A", *values)
    head = "Evaluation Parameters Metric Pair First Second Difference"
    header = (*head.split(), "95 % interval", "p (McNemar)", "Adjusted p (Holm, 9 tests)", "Test")
    table = latex_differences(header, [row, row], ["A = job x"])
    begin = r"\begin{table}[htbp]\centering\scriptsize\setlength{\tabcolsep}{2pt}"
    assert not overfull(tmp_path, begin, table)
    assert "p (McNemar); Adjusted p (Holm, 9 tests)" in table
