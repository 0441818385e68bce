"""The arithmetic of a job, by its spec and its provenance."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.metrics.arithmetic import arithmetic_settings

WITH, WITHOUT = {"tf32": True}, {"tf32": False}


@pytest.mark.parametrize(
    ("execution", "device", "expected"),
    [
        ({"dtype": "float32"}, WITHOUT, {"dtype": "float32"}),
        ({"dtype": "tf32"}, WITH, {"dtype": "tf32"}),
        ({"dtype": "tf32"}, WITHOUT, {"dtype": "float32"}),
        ({"dtype": "tf32"}, {**WITHOUT, "mixed": [WITHOUT, WITH]}, {"dtype": "tf32"}),
        ({"dtype": "tf32"}, {}, {"dtype": "tf32"}),
        ({"dtype": "bfloat16", "screening": None}, WITHOUT, {"dtype": "bfloat16"}),
        (
            {"dtype": "float32", "screening": "bfloat16", "channels_last": True, "capture": True},
            WITHOUT,
            {"dtype": "float32", "screening": "bfloat16", "channels_last": "true"},
        ),
    ],
)
def test_settings_that_change_numbers(
    execution: Any, device: dict[str, Any], expected: dict[str, str]
) -> None:
    assert arithmetic_settings(execution, {"device": device} if device else {}) == expected
