"""The variables that tell an evaluator which descriptors its two pipes have."""

from __future__ import annotations

REQUESTS = "ASSAY_REQUESTS_FD"
REPORTS = "ASSAY_REPORTS_FD"
