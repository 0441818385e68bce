"""The outcome tables of the analyses."""

from __future__ import annotations

from assay.service.metrics.table import OutcomeTable
from assay.service.metrics.tables.attention_cost import AttentionCost
from assay.service.metrics.tables.attention_spectrum import AttentionSpectrum
from assay.service.metrics.tables.efficiency import Efficiency
from assay.service.metrics.tables.eigenvector_check import EigenvectorCheck
from assay.service.metrics.tables.head_distance import HeadDistance
from assay.service.metrics.tables.instability import Instability
from assay.service.metrics.tables.projection_loss import ProjectionLoss
from assay.service.metrics.tables.pursuit_check import PursuitCheck
from assay.service.metrics.tables.spectral_error import SpectralError

ANALYSES: tuple[OutcomeTable, ...] = (
    AttentionCost(),
    AttentionSpectrum(),
    Efficiency(),
    EigenvectorCheck(),
    HeadDistance(),
    Instability(),
    ProjectionLoss(),
    PursuitCheck(),
    SpectralError(),
)
