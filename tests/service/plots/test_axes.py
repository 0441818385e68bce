"""Ticks of all plots: two of one axis never read alike, however close the numbers are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

import pytest

from assay.service.contract.results import Results
from assay.service.plots.kinds import KINDS, LabelledResults, plots_of
from assay.service.plots.render import Renderer
from tests.service.plots.conftest import labelled

SVG = "{http://www.w3.org/2000/svg}"
# Ranges from a hundredth to a hundred-thousandth of the values.
WIDTHS = (1.0, 0.01, 0.0002)


@pytest.fixture(scope="module")
def renderer() -> Iterator[Renderer]:
    made = Renderer()
    yield made
    made.close()


def narrowed(job: LabelledResults, width: float) -> LabelledResults:
    """The job with all its proportions and losses within `width` below 0.99, its passes nearly equal."""

    def near(value: Any) -> Any:
        if isinstance(value, list):
            return [near(item) for item in value]
        if not isinstance(value, dict):
            return value
        found = {name: near(item) for name, item in value.items()}
        if "ci_method" in found:
            ends = {name: found[name] for name in ("value", "ci_low", "ci_high") if found[name] is not None}
            found |= {name: 0.99 - width * (1 - end) for name, end in ends.items()}
        if "forward_passes" in found and len(found.get("params", {})) == 1:
            found["forward_passes"] += max(1, round(1000 * width))
        return found

    results = Results.model_validate(near(job.results.model_dump(mode="json")))
    log = [{**one, "loss": 1 + width * one["loss"]} for one in job.training]
    return LabelledResults(job.label, results, job.tallies, log)


def axes(svg: str) -> Iterator[list[str]]:
    """The labels of each axis, without the empty ones of a logarithmic axis."""
    for group in ElementTree.fromstring(svg).iter(f"{SVG}g"):
        if "role-axis-label" in group.get("class", ""):
            yield [text for item in group.iter(f"{SVG}text") if (text := "".join(item.itertext()).strip())]


@pytest.mark.costly
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("together", [False, True])
def test_two_ticks_of_an_axis_never_read_alike(renderer: Renderer, width: float, together: bool) -> None:
    first, second = (narrowed(labelled(name, shift), width) for name, shift in (("a", 0.0), ("b", 0.1)))
    drawn = plots_of([first, second] if together else [first])
    assert together or set(drawn) == set(KINDS)
    for kind, spec in drawn.items():
        found = list(axes(renderer.render(spec, "svg").decode()))
        assert found, kind
        for labels in found:
            assert len(labels) == len(set(labels)), (kind, labels)


def test_clean_accuracies_that_are_close_have_decimals(renderer: Renderer) -> None:
    jobs = [narrowed(labelled(name, shift), 0.05) for name, shift in (("a", 0.0), ("b", 0.2))]
    spec = KINDS["tradeoff"].build(jobs)
    assert spec is not None
    clean = next(iter(axes(renderer.render(spec, "svg").decode())))
    assert len(clean) >= 4
    assert all("." in label for label in clean), clean


def test_whole_shares_have_none(renderer: Renderer) -> None:
    spec = KINDS["curve"].build([labelled()])
    assert spec is not None
    found = list(axes(renderer.render(spec, "svg").decode()))
    assert ["0%", "20%", "40%", "60%", "80%", "100%"] in found
