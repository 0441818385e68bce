"""Sizes of plots, for the room that a page keeps for them."""

from __future__ import annotations

import pytest

from assay.service.plots.kinds import LabelledResults, plots_of
from assay.service.plots.marks import beside
from assay.service.plots.render import Renderer
from assay.service.plots.sizes import SCALE, USUAL, svg_size, usual_size
from assay.service.plots.theme import themed


@pytest.mark.parametrize(
    ("head", "size"),
    [
        (b'<svg xmlns="x" class="marks" width="475" height="243" viewBox="0 0 475 243"><rect', (475, 243)),
        (b'<?xml version="1.0"?>\n<!DOCTYPE svg>\n<svg height="345.6pt" width="460.8pt">', (461, 346)),
        (b"<svg viewBox='-2 0 324.4 72'>", (324, 72)),
        (b'<svg width="100%" height="100%" viewBox="0 0 8 4">', (8, 4)),
        (b'<svg stroke-width="3" viewBox="0 0 8 4">', (8, 4)),
        (b'<svg width="0" height="10">', None),
        (b'<svg width="99999" height="10">', None),
        (b"<svg>", None),
        (b"<html>", None),
        (b"\xff\x00", None),
        (b'<svg width="4" ' + b"x" * 5000, None),
    ],
)
def test_a_size_is_read_from_the_head_of_a_file(head: bytes, size: tuple[int, int] | None) -> None:
    assert svg_size(head) == size


def test_a_plot_of_several_panels_gets_their_room() -> None:
    four, wide = [{"width": 174}] * 4, [{"width": 290}] * 5
    assert usual_size({}) == tuple(round(SCALE * side) for side in USUAL)
    assert usual_size({"width": {"step": 38}, "height": {"step": 17}}) == usual_size({}), "as stored before"
    assert usual_size(beside(four)) == (round(SCALE * 1044), round(SCALE * USUAL[1]))
    assert usual_size(beside(wide)) == (round(SCALE * (430 + 3 * 346 - 306)), round(SCALE * 2 * USUAL[1]))


def test_every_kind_of_plot_gets_about_its_size(job: LabelledResults, other_job: LabelledResults) -> None:
    renderer = Renderer()
    try:
        for jobs in ([job], [job, other_job]):
            for kind, spec in plots_of(jobs).items():
                drawn = svg_size(renderer.render(themed(spec, "light"), "svg"))
                assert drawn is not None
                for kept, side in zip(usual_size(spec), drawn, strict=True):
                    assert 0.8 < kept / SCALE / side < 1.4, (kind, len(jobs), drawn)
    finally:
        renderer.close()
