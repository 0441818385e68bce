"""Assay's outcome tables by name; packages bring their own."""

from __future__ import annotations

from collections.abc import Mapping

from assay.service.metrics.analyses.tables import ANALYSES
from assay.service.metrics.table import OutcomeTable
from assay.service.metrics.tables.anomaly import Anomaly
from assay.service.metrics.tables.calibration import Calibration
from assay.service.metrics.tables.classification import Attack, Classification
from assay.service.metrics.tables.corrupted_segmentation import CorruptedSegmentation
from assay.service.metrics.tables.corruption import CorruptedClassification, StoredCorruptions
from assay.service.metrics.tables.forced_continuation import ForcedContinuation
from assay.service.metrics.tables.perplexity import Perplexity
from assay.service.metrics.tables.regression import Regression
from assay.service.metrics.tables.returns import Returns
from assay.service.metrics.tables.segmentation import Segmentation
from assay.service.metrics.tables.smoothing import Smoothed
from assay.service.metrics.tables.text_attack import TextAttack
from assay.service.metrics.tables.verification import Verified
from assay.service.metrics.tables.word_swap import WordSwap
from assay.service.metrics.tables.worst_case import AttackedSegmentation

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
