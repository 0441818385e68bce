"""The model that Assay brings, a small transformer, and the data that it was trained on (docs/results.md)."""

from __future__ import annotations

from pathlib import Path

EXAMPLE, EXAMPLE_DATA = "example", "digits"
EXAMPLE_WEIGHTS = Path(__file__).with_name("example.safetensors")
