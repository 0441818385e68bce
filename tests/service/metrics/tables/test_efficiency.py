"""The merge of efficiency: a table of one machine."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from assay.service.metrics.table import Context
from assay.service.metrics.tables.efficiency import Efficiency

SVG = "{http://www.w3.org/2000/svg}"

DEVICE = {"type": "cpu", "name": "a processor", "threads": 1}

FOUND = {
    "batch_size": 4, "parameters": 100, "model_bytes": 1000,
    "test_flops": 50.0, "train_flops": 150.0, "test_bytes": 400, "train_bytes": 1200,
}  # fmt: skip

SECONDS = {"test_seconds": [0.2, 0.1, 0.9], "train_seconds": [0.5, 0.4, 0.6]}


def test_efficiency_is_a_table_of_one_machine() -> None:
    found = Efficiency().summarise(SECONDS, Context(evidence=[FOUND], device=DEVICE))
    values = {name: metric.value for name, metric in found.metrics.items()}
    assert values == {
        "parameters": 100, "multiply_adds": 25, "flops": 50, "train_multiply_adds": 75,
        "test_seconds": 0.2, "train_seconds": 0.5,
        "test_memory_per_image": 100, "train_memory_per_image": 300,
        "test_memory": 1400, "train_memory": 2200,
    }  # fmt: skip
    assert found.metrics["parameters"].ci_method == "exact"
    assert found.metrics["test_seconds"].n == 3
    (warning,) = found.warnings
    assert warning.code == "measures_the_machine"
    assert warning.evidence["device"] == DEVICE
    assert "a processor at 4 examples a pass" in warning.message
    bars = [
        bar
        for bar in ElementTree.fromstring(found.plot or "").iter(f"{SVG}rect")
        if bar.attrib["width"] == "60"
    ]
    heights = [float(bar.attrib["height"]) for bar in bars]
    assert heights[1] / heights[0] == pytest.approx(2.5, abs=0.01)
    assert heights[3] / heights[2] == pytest.approx(3, abs=0.01)
