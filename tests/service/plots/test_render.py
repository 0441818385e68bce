"""The rendering process: its answers, its failures, and the cache."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from assay.service.plots import render as rendering
from assay.service.plots.kinds import KINDS, LabelledResults, plots_of
from assay.service.plots.render import COMMAND, Renderer, RenderError, digest, render
from assay.service.plots.theme import themed

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


class Counted(Renderer):
    """Answers without a process."""

    def __init__(self) -> None:
        super().__init__(())
        self.calls: list[dict[str, Any]] = []

    def render(self, spec: dict[str, Any], format: Any) -> bytes:  # noqa: A002
        self.calls.append(spec)
        return f"{format} {len(self.calls)}".encode()


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


def test_a_second_rendering_reads_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    counted = Counted()
    monkeypatch.setattr(rendering, "_RENDERER", counted)
    spec = {"mark": "point"}
    assert render(spec, "svg", cache=tmp_path) == render(spec, "svg", cache=tmp_path) == b"svg 1"
    assert render(spec, "svg", scheme="dark", cache=tmp_path) == b"svg 2"
    assert render(spec, "png", cache=tmp_path) == b"png 3"
    assert render({"mark": "bar"}, "svg", cache=tmp_path) == b"svg 4"
    assert render(spec, "svg") == b"svg 5"
    assert len(list(tmp_path.iterdir())) == 4


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(rendering, "_RENDERER", Counted())
    monkeypatch.setattr(rendering, "MAX_CACHED", 4)
    for number in range(12):
        render({"title": number}, "svg", cache=tmp_path)
        assert len(list(tmp_path.iterdir())) <= 4


def test_the_digest_changes_with_the_renderer(monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest({}, "svg", "light")
    monkeypatch.setattr(rendering.importlib.metadata, "version", lambda name: "0")
    assert digest({}, "svg", "light") != before


@pytest.mark.slow
def test_every_plot_renders_and_odd_names_are_escaped(
    job: LabelledResults, other_job: LabelledResults
) -> None:
    odd = LabelledResults("<script>alert(1)</script> 😀 שלום", job.results, job.tallies, job.training)
    renderer = Renderer()
    try:
        for jobs in ([odd], [odd, other_job]):
            for kind, spec in plots_of(jobs).items():
                text = renderer.render(themed(spec, "dark"), "svg").decode()
                assert text.startswith("<svg"), kind
                assert "<script" not in text
        spec = KINDS["curve"].build([job])
        assert spec is not None
        assert renderer.render(spec, "svg") == renderer.render(spec, "svg"), "the same bytes every time"
        assert renderer.render(spec, "png").startswith(b"\x89PNG")
        pdf = renderer.render(spec, "pdf")
        assert pdf.startswith(b"%PDF")
        assert b"LiberationSans" in pdf, "the font is embedded"
        for address in ("http://127.0.0.1:9/data.json", "file:///etc/hostname", "/etc/hostname"):
            with pytest.raises(RenderError, match="may not name an address"):
                renderer.render({"data": {"url": address}, "mark": "point"}, "svg")
        with pytest.raises(RenderError, match="could not be rendered"):
            renderer.render({"mark": "no such mark"}, "svg")
        assert renderer.render(spec, "svg")
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
