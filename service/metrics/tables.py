"""Assay's outcome tables by name; packages bring their own."""

from __future__ import annotations

from collections.abc import Mapping

from assay.service.metrics.analyses.tables import ANALYSES
from assay.service.metrics.anomaly import Anomaly
from assay.service.metrics.calibration import Calibration
from assay.service.metrics.classification import Attack, Classification
from assay.service.metrics.corrupted_segmentation import CorruptedSegmentation
from assay.service.metrics.corruption import CorruptedClassification, StoredCorruptions
from assay.service.metrics.forced_continuation import ForcedContinuation
from assay.service.metrics.perplexity import Perplexity
from assay.service.metrics.regression import Regression
from assay.service.metrics.returns import Returns
from assay.service.metrics.segmentation import Segmentation
from assay.service.metrics.smoothing import Smoothed
from assay.service.metrics.table import OutcomeTable
from assay.service.metrics.text_attack import TextAttack
from assay.service.metrics.verification import Verified
from assay.service.metrics.word_swap import WordSwap
from assay.service.metrics.worst_case import AttackedSegmentation

_EVERY: tuple[OutcomeTable, ...] = (
    Anomaly(),
    Attack(),
    AttackedSegmentation(),
    Calibration(),
    Classification(),
    CorruptedClassification(),
    CorruptedSegmentation(),
    ForcedContinuation(),
    Perplexity(),
    Regression(),
    Returns(),
    Segmentation(),
    Smoothed(),
    StoredCorruptions(),
    TextAttack(),
    Verified(),
    WordSwap(),
    *ANALYSES,
)
TABLES: Mapping[str, OutcomeTable] = {table.name: table for table in _EVERY}
