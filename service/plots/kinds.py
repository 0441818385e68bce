"""The kinds of plots, and those that results allow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from assay.service.plots import (
    bracket,
    curve,
    examples,
    heatmap,
    security_curve,
    stages,
    strength,
    tradeoff,
    training,
)
from assay.service.plots.series import LabelledResults
from assay.service.plots.theme import MAX_TITLE, Vega, without_middle

Builder = Callable[[Sequence[LabelledResults]], Vega | None]

__all__ = ["KINDS", "LabelledResults", "PlotKind", "Vega", "plots_of"]


@dataclass(frozen=True)
class PlotKind:
    """A kind of plot."""

    title: str
    needs: str  # in results
    build: Builder  # makes its spec, or None
    needs_together: str = ""  # in several jobs beside that; empty for nothing

    def __call__(self, jobs: Sequence[LabelledResults]) -> Vega | None:
        """The spec, or None; caption and description name grave warnings about all results of a job."""
        spec = self.build(jobs)
        found = {told.code for job in jobs for told in job.results.warnings if told.severity == "invalid"}
        if spec is None or not found:
            return spec
        said = f"invalid: {', '.join(sorted(found))}"
        subtitle = without_middle(": ".join(filter(None, [said, spec["title"].get("subtitle")])), MAX_TITLE)
        title = {**spec["title"], "subtitle": subtitle}
        return {**spec, "title": title, "description": f"{said}. {spec['description']}"}

    def lacking(self, jobs: int) -> str:
        """What so many jobs without this plot may lack, in words."""
        return f"{self.needs}, and {self.needs_together}" if jobs > 1 and self.needs_together else self.needs


KINDS: Mapping[str, PlotKind] = {
    "curve": PlotKind(curve.TITLE, curve.NEEDS, curve.curve),
    "security_curve": PlotKind(security_curve.TITLE, security_curve.NEEDS, security_curve.security_curve),
    "bracket": PlotKind(bracket.TITLE, bracket.NEEDS, bracket.bracket),
    "stages": PlotKind(stages.TITLE, stages.NEEDS, stages.stages),
    "heatmap": PlotKind(heatmap.TITLE, heatmap.NEEDS, heatmap.heatmap),
    "tradeoff": PlotKind(tradeoff.TITLE, tradeoff.NEEDS, tradeoff.tradeoff, tradeoff.NEEDS_TOGETHER),
    "cost": PlotKind(tradeoff.COST_TITLE, tradeoff.COST_NEEDS, tradeoff.cost),
    "strength": PlotKind(strength.TITLE, strength.NEEDS, strength.strength),
    "calibration": PlotKind(examples.CALIBRATION_TITLE, examples.CALIBRATION_NEEDS, examples.calibration),
    "confusion": PlotKind(examples.CONFUSION_TITLE, examples.CONFUSION_NEEDS, examples.confusion),
    "classes": PlotKind(examples.CLASSES_TITLE, examples.CLASSES_NEEDS, examples.classes),
    "training": PlotKind(training.TITLE, training.NEEDS, training.training),
}


def plots_of(results: Sequence[LabelledResults]) -> dict[str, Vega]:
    """The plots that results of a job or several allow, by kind."""
    if not results:
        return {}
    found = {name: kind(results) for name, kind in KINDS.items()}
    return {name: spec for name, spec in found.items() if spec is not None}
