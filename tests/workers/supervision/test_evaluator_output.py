"""What an evaluator prints: bounded in the log, and without characters that control a terminal."""

from __future__ import annotations

import io
import logging

import pytest

from assay.workers.supervision import evaluator_output
from assay.workers.supervision.evaluator_output import LINES_KEPT, EvaluatorOutput, Rate


def test_a_rate_allows_so_many_at_once_and_each_second() -> None:
    now = [0.0]
    rate = Rate(3, 2.0, lambda: now[0])
    assert [rate.allows() for _ in range(5)] == [True, True, True, False, False]
    now[0] = 1.0
    assert [rate.allows() for _ in range(3)] == [True, True, False]
    now[0] = 100.0
    assert [rate.allows() for _ in range(5)] == [True, True, True, False, False]


def printed(content: bytes) -> EvaluatorOutput:
    output = EvaluatorOutput(io.BytesIO(content), 7)
    output.join(10)
    return output


def test_control_characters_are_escaped(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    output = printed(b"10 %\r20 %\x1b[2J\x07 \xe2\x80\xae\n\xff\n")
    assert output.tail == "10 %\\r20 %\\x1b[2J\\x07 \\u202e\n\ufffd"
    assert caplog.messages[0] == "evaluator 7: 10 %\\r20 %\\x1b[2J\\x07 \\u202e"


def test_a_flood_is_dropped_with_a_note(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluator_output.time, "monotonic", lambda: 0.0)
    monkeypatch.setattr(Rate.__init__, "__defaults__", (lambda: 0.0,))
    caplog.set_level(logging.INFO)
    output = printed(b"line\n" * 10_000)
    assert len(caplog.messages) == evaluator_output.LINES_AT_ONCE + 1
    assert caplog.messages[-1] == "evaluator 7: 9500 lines were dropped, allowed: 20 a second"
    assert output.tail.count("line") == LINES_KEPT
