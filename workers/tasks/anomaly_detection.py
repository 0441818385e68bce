"""Anomaly detection in images."""

from __future__ import annotations

from assay.workers.tasks.classification import Task

__all__ = ["anomaly_detection"]

FACTS = {"done_by": "classification"}


def anomaly_detection() -> Task:
    """Anomaly detection: a classifier's confidence tells images of its classes from others."""
    return Task()
