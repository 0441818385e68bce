"""The process that renders: it stays, it is started again, it ends with its parent."""

from __future__ import annotations

import subprocess
import sys

import pytest

from assay.service.plots.render import COMMAND, Renderer, RenderError

ECHO = """
import sys
while header := sys.stdin.buffer.read(4):
    request = sys.stdin.buffer.read(int.from_bytes(header, "big"))
    {action}
    sys.stdout.buffer.write(bytes([0]) + (2).to_bytes(4, "big") + b"ok")
    sys.stdout.buffer.flush()
"""


def stand_in(action: str = "pass") -> tuple[str, ...]:
    """A process that answers "ok", and does something with a request first."""
    return (sys.executable, "-c", ECHO.format(action=action))


def test_a_process_stays_for_the_next_plot() -> None:
    renderer = Renderer(stand_in())
    try:
        assert renderer.render({}, "svg") == b"ok"
        first = renderer._process
        assert renderer.render({}, "svg") == b"ok"
        assert renderer._process is first
    finally:
        renderer.close()
    assert first is not None
    assert first.poll() is not None


def test_after_a_crash_the_next_plot_is_rendered() -> None:
    renderer = Renderer(stand_in("b'crash' in request and sys.exit(3)"))
    try:
        with pytest.raises(RenderError, match="ended with exit code 3"):
            renderer.render({"title": "crash"}, "svg")
        assert renderer.render({}, "svg") == b"ok"
    finally:
        renderer.close()


def test_a_process_that_takes_too_long_is_ended() -> None:
    renderer = Renderer(stand_in("b'slow' in request and __import__('time').sleep(60)"), max_seconds=0.5)
    try:
        with pytest.raises(RenderError, match=r"longer than 0\.5 s"):
            renderer.render({"title": "slow"}, "svg")
        assert renderer._process is None
    finally:
        renderer.close()


def test_a_process_that_ended_while_idle_is_started_again() -> None:
    renderer = Renderer(stand_in())
    try:
        renderer.render({}, "svg")
        assert renderer._process is not None
        renderer._process.kill()
        renderer._process.wait()
        assert renderer.render({}, "svg") == b"ok"
    finally:
        renderer.close()


def test_the_process_gets_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_KEY", "secret")
    renderer = Renderer(stand_in("'ASSAY_KEY' in __import__('os').environ and sys.exit(7)"))
    try:
        assert renderer.render({}, "svg") == b"ok"
    finally:
        renderer.close()


@pytest.mark.slow
def test_the_process_ends_with_its_parent() -> None:
    process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    assert process.wait(timeout=30) == 0
    process.stdout.close()
