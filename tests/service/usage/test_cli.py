"""`assay usage`: its table and the sentences below it."""

from __future__ import annotations

import contextlib

import pytest

from assay.service.fitted_text import fitted
from assay.service.usage.cli import usage_text
from assay.service.usage.wire import DeviceSeconds, Usage, UsageLine
from tests.support.terminals import ESCAPES, Terminal


@pytest.mark.parametrize("columns", [80, 120])
def test_no_line_is_longer_than_the_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", str(columns))
    spent = DeviceSeconds(total=86400.0, starts=43200.1, lost=10800.2, repeated=10800.3, running=3600.4)
    line = UsageLine(key="a-tag", name=None, jobs=12, gpu=spent, cpu=spent)
    day = "2026-11-29"
    found = Usage(by="tag", since=day, until=day, total=line, items=[line], next_cursor=None)
    with contextlib.closing(Terminal()) as terminal, terminal:
        text = fitted(usage_text(found), terminal.file)
    lines = ESCAPES.sub("", text).splitlines()
    assert max(map(len, lines)) <= columns
    sums = " ".join(" ".join(lines).split())
    for name in ("GPU", "CPU"):
        assert (
            f"{name}: 86400.0 s; wasted: starts 43200.1 s (50.0%), lost 10800.2 s (12.5%), "
            "repeated 10800.3 s (12.5%); 3600.4 s still run"
        ) in sums
