"""Accuracy by corruption and severity."""

from __future__ import annotations

from assay.service.plots.kinds import LabelledResults, plots_of


def test_a_heatmap_has_a_number_in_each_cell(job: LabelledResults) -> None:
    spec = plots_of([job])["heatmap"]
    assert [(row["corruption"], row["severity"]) for row in spec["data"]["values"]] == [
        (name, severity) for name in ("fog", "frost") for severity in ("1", "3", "5")
    ]
    assert [layer["mark"]["type"] for layer in spec["layer"]] == ["rect", "text"]
