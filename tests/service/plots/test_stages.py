"""The accuracy left after each stage of an ensemble."""

from __future__ import annotations

from assay.service.plots.kinds import LabelledResults, plots_of


def test_stages_fall_from_the_accuracy_without_an_attack(job: LabelledResults) -> None:
    found = plots_of([job])["stages"]["data"]["values"]
    assert [(row["stage"], row["value"]) for row in found] == [
        ("no attack", 0.95),
        ("1. apgd_ce", 0.65),
        ("2. square", 0.6),
    ]
    assert (found[1]["entered"], found[1]["broken"], found[1]["passes"]) == (190, 60, 150)
