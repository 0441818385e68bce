"""Work that a page waits for a little."""

from __future__ import annotations

import threading

import pytest

from assay.service.dashboard import pending
from assay.service.dashboard.pending import Pending


def test_what_is_quick_is_given_at_once() -> None:
    work: Pending[int] = Pending()
    assert work.of("a", lambda: 1) == 1
    assert work.of("a", lambda: 2) == 2


def test_what_takes_long_is_given_to_a_later_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending, "WAIT_SECONDS", 0.01)
    work: Pending[int] = Pending()
    go_on, calls = threading.Event(), []

    def slow() -> int:
        calls.append(1)
        go_on.wait(30)
        return 7

    assert work.of("a", slow) is None
    assert work.of("a", slow) is None
    go_on.set()
    monkeypatch.setattr(pending, "WAIT_SECONDS", 30)
    assert work.of("a", slow) == 7
    assert calls == [1]


def test_errors_are_raised_and_forgotten() -> None:
    work: Pending[int] = Pending()

    def wrong() -> int:
        raise TimeoutError("the database is away")

    for _ in range(2):
        with pytest.raises(TimeoutError, match="away"):
            work.of("a", wrong)
    assert work.of("a", lambda: 1) == 1


def test_no_more_than_so_many_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending, "WAIT_SECONDS", 0.01)
    monkeypatch.setattr(pending, "MAX_PENDING", 1)
    work: Pending[bool] = Pending()
    go_on = threading.Event()
    assert work.of("a", lambda: go_on.wait(30)) is None
    assert work.of("b", lambda: True) is None
    go_on.set()
    monkeypatch.setattr(pending, "WAIT_SECONDS", 30)
    assert work.of("a", lambda: False) is True
    assert work.of("b", lambda: True) is True
