from __future__ import annotations

import re

import pytest

from assay.service.reports.markdown_text import escape_markdown

SHOWN = {
    "a|b": r"a\|b",
    "*bold* `code` ~~gone~~": r"\*bold\* \`code\` \~\~gone\~\~",
    "<img src=x onerror=alert(1)>": "&lt;img src=x onerror=alert(1)&gt;",
    "&lt;b&gt;": "&amp;lt;b&amp;gt;",
    "![x](http://y) [z][1] [^note] [a]: b": r"![x\](http://y) [z\][1] \[^note] [a\]: b",
    "_emphasis_ __strong__": r"\_emphasis\_ \_\_strong\_\_",
    r"already \| escaped": r"already \\\| escaped",
    "$x$": r"\$x\$",
}


@pytest.mark.parametrize("text", sorted(SHOWN))
def test_markup_is_shown_as_text(text: str) -> None:
    assert escape_markdown(text) == SHOWN[text]


@pytest.mark.parametrize(
    "text", ["97.5 [95.3, 98.7]", "accuracy_under_attack", "pgd epsilon=2/255", "-0.3 ± 1 %"]
)
def test_plain_text_stays_as_it_is(text: str) -> None:
    assert escape_markdown(text) == text


def test_no_cell_of_a_table_ends_early() -> None:
    assert not re.search(r"(?<!\\)(\\\\)*\|", escape_markdown("a\\|b|c\\\\|d"))
