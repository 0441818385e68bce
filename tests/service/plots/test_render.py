"""The rendering process: its answers, its failures, and the cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.service.plots import render as rendering
from assay.service.plots.kinds import KINDS, LabelledResults, plots_of
from assay.service.plots.render import Renderer, RenderError, digest, render
from assay.service.plots.theme import themed


class Counted(Renderer):
    """Answers without a process."""

    def __init__(self) -> None:
        super().__init__(())
        self.calls: list[dict[str, Any]] = []

    def render(self, spec: dict[str, Any], format: Any) -> bytes:  # noqa: A002
        self.calls.append(spec)
        return f"{format} {len(self.calls)}".encode()


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
    before = digest({}, "svg")
    monkeypatch.setattr(rendering.importlib.metadata, "version", lambda name: "0")
    assert digest({}, "svg") != before


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
