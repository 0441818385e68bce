"""The plot of an attack's steps on an example, and the warnings of which they are a case."""

from __future__ import annotations

from assay.service.contract.findings.traces import TracedStep
from assay.service.plots.trace import PANELS, seen_codes, trace


def step(
    number: int, objective: float | None, margin: float = 1.0, gradient: float | None = 0.5
) -> TracedStep:
    return TracedStep("pgd", 0, number, objective, margin, 0.1, 0.2, gradient)


def test_a_panel_for_each_number_has_all_iterates_in_order() -> None:
    steps = [step(0, 1.0), step(1, None), TracedStep("square", 1, 0, 2.0, -0.5, 0.1, 0.2, None)]
    spec = trace(steps, "x3")
    rows = spec["data"]["values"]
    assert [row["iterate"] for row in rows] == [0, 1, 2]
    assert [row["series"] for row in rows] == ["pgd, restart 0", "pgd, restart 0", "square, restart 1"]
    assert [panel["encoding"]["y"]["field"] for panel in spec["concat"]] == list(PANELS)
    assert "3 iterates, margin from 1 to -0.5" in spec["description"]


def test_steps_are_cases_of_warnings_by_their_rules() -> None:
    rising = [step(number, 0.1 * number) for number in range(20)]
    assert seen_codes(rising) == {"unconverged"}
    assert seen_codes([*rising[:-1], step(19, 9.0, margin=-1.0)]) == set()
    assert seen_codes([*rising[:-2], step(18, 1.71), step(19, 1.71)]) == set()
    assert seen_codes([step(0, 1.0, gradient=0.0), step(1, None)]) == {"zero_gradient"}
    assert seen_codes([step(0, 1.0, gradient=None), step(1, 1.0)]) == set()
    assert seen_codes([]) == set()
