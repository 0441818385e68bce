"""Markdown tables, as a reader of Markdown shows them, with any names of jobs."""

from __future__ import annotations

import re

import pytest

from assay.service.reports.formats.markdown import markdown_list, markdown_table, markdown_texts
from assay.service.reports.tables import Table, TableCell

HOSTILE = (
    "a | b",
    "x | --- |\n| y",
    "<script>alert(1)</script>",
    "[click](javascript:alert(1))",
    "![x](http://evil/pixel.png)",
    "`code` **bold** _it_ ~~no~~ $x$",
    "\\| escaped",
    "\x1b[31mred\x00\u202e\u2028next",
    "&lt;b&gt;",
)


def cells_of(line: str) -> list[str]:
    """The cells of a line, by the rule of GitHub's tables: a bar with a backslash is text."""
    assert line.startswith("| ")
    assert line.endswith(" |")
    return re.split(r"(?<!\\)\| | \|$", line[2:])[:-1]


def test_a_table_has_a_head_its_cells_and_its_notes() -> None:
    cells = [TableCell("50.0 %", "40.0 %, 60.0 %", bold=True), None, TableCell("7", "")]
    text = markdown_table(Table(["attack", "a", "b", "c"], [("pgd", cells)], ["n = 100", "two"]))
    assert text == (
        "| attack | a | b | c |\n"
        "| --- | ---: | ---: | ---: |\n"
        "| pgd | **50.0 %** [40.0 %, 60.0 %] | - | 7 |\n"
        "\n"
        "- n = 100\n"
        "- two\n"
    )


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_makes_a_cell_a_line_or_html(text: str) -> None:
    table = Table([text, text], [(text, [TableCell(text, text)])], [text])
    lines = markdown_table(table).splitlines()
    assert len(lines) == 5, "head, rule, a row, an empty line, a note"
    assert [len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) for line in lines] == [3, 3, 3, 0, 0]
    for line in (*lines[:1], *lines[2:]):
        assert not re.search(r"<(?!/?$)", line)
        assert not re.search(r"(?<!\\)\](?=\()", line)
        assert line.isprintable()
        assert not re.search(r"(?<!\\)[`*$]", line)


@pytest.mark.parametrize("text", HOSTILE)
def test_lists_and_tables_of_texts_are_as_safe(text: str) -> None:
    assert markdown_list([text, text]).count("\n") == 2
    lines = markdown_texts(["a", text], [[text, text]], [text]).splitlines()
    assert len(lines) == 5
    assert markdown_list([text]).splitlines()[0] == lines[4]


def test_without_notes_a_table_ends_after_its_rows() -> None:
    assert markdown_texts(["a"], [["b"]], []) == "| a |\n| --- |\n| b |\n\n"


def test_a_cell_is_shown_as_it_was_written() -> None:
    head = markdown_texts(["snake_case a_b", "8/255 #1 ε"], [], []).splitlines()[0]
    assert cells_of(head) == ["snake_case a_b ", "8/255 #1 ε"]
