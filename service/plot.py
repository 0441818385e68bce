"""Accuracy against epsilon, as a picture. Needs matplotlib (the `demo` extra)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from assay.service.contract.fractions import fraction_value
from assay.service.contract.results import EvaluationResult, Results

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
MARKERS = {"uniform_noise": "s", "fgsm": "^", "pgd": "o"}
TITLES = {"uniform_noise": "Uniform noise", "fgsm": "FGSM", "pgd": "PGD-20"}


def accuracy_against_epsilon(results: Mapping[str, Results], path: Path) -> None:
    """One panel per attack, one curve per model, with 95 % intervals; written as PNG."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    attacks = list(MARKERS)
    figure, axes = pyplot.subplots(1, len(attacks), figsize=(12, 4), sharey=True, layout="constrained")
    for axis, attack in zip(axes, attacks, strict=True):
        for (label, result), colour in zip(results.items(), COLOURS, strict=False):
            rows = [e for e in result.evaluations if e.name == attack]
            clean = next(e for e in result.evaluations if e.name == "clean")
            _curve(axis, clean, rows, label, colour, MARKERS[attack])
        axis.set_title(f"{TITLES[attack]}, $L_\\infty$")
        axis.set_xlabel("epsilon (in 1/255 of the pixel range)")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("top-1 accuracy, %")
    axes[0].set_ylim(-2, 102)
    axes[-1].legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _curve(
    axis: object, clean: EvaluationResult, rows: list[EvaluationResult], label: str, colour: str, marker: str
) -> None:
    points = [(0.0, clean.metrics["top1"])] + [
        (255 * fraction_value(row.params["epsilon"]), row.metrics["top1"]) for row in rows
    ]
    known = [(x, m.value, m.ci_low or 0.0, m.ci_high or 0.0) for x, m in points if m.value is not None]
    x = [p[0] for p in known]
    y = [100 * p[1] for p in known]
    below = [100 * (p[1] - p[2]) for p in known]
    above = [100 * (p[3] - p[1]) for p in known]
    axis.errorbar(  # type: ignore[attr-defined]
        x, y, yerr=[below, above], label=label, color=colour, marker=marker, capsize=3, linewidth=1.5
    )
