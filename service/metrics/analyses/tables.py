"""The outcome tables of the analyses."""

from __future__ import annotations

from assay.service.metrics.analyses.attention_cost import AttentionCost
from assay.service.metrics.analyses.attention_spectrum import AttentionSpectrum
from assay.service.metrics.analyses.efficiency import Efficiency
from assay.service.metrics.analyses.eigenvector_check import EigenvectorCheck
from assay.service.metrics.analyses.head_distance import HeadDistance
from assay.service.metrics.analyses.instability import Instability
from assay.service.metrics.analyses.projection_loss import ProjectionLoss
from assay.service.metrics.analyses.pursuit_check import PursuitCheck
from assay.service.metrics.analyses.spectral_error import SpectralError
from assay.service.metrics.table import OutcomeTable

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
