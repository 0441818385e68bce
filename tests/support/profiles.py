"""Two profiles, and the command in this process."""

from __future__ import annotations

from collections.abc import Callable

Assay = Callable[..., tuple[int, str, str]]


LAB, HOME = "https://lab.example", "http://home.example:8000"


KEY = "assay_secret_0123456789"
