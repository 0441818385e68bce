"""Accuracy under corruptions and the mean corruption error, from per-example outcomes.

Hendrycks and Dietterich 2019, "Benchmarking Neural Network Robustness to Common Corruptions and
Perturbations", section 4: CE_c = (sum of the errors E_{s,c} over severities s) / (the same sum of
AlexNet), mCE = mean of CE_c over the fifteen corruptions. Both are means over examples of numbers that
belong to one example each, so their intervals come from resampling examples, not from taking the 75
answers to one image for 75 images.
"""

from __future__ import annotations

from collections.abc import Sequence

from assay.service.contract.corruption_cells import SEVERITIES, Cell
from assay.service.contract.results import Breakdown, Metric
from assay.service.metrics.classification import bootstrap_resamples, proportion
from assay.service.metrics.intervals import bootstrap_mean

# AlexNet's error under each corruption, the mean over severities, on the stored ImageNet-C; of the authors.
ALEXNET_ERRORS = {
    "gaussian_noise": 0.886428,
    "shot_noise": 0.894468,
    "impulse_noise": 0.922640,
    "defocus_blur": 0.819880,
    "glass_blur": 0.826268,
    "motion_blur": 0.785948,
    "zoom_blur": 0.798360,
    "snow": 0.866816,
    "frost": 0.826572,
    "fog": 0.819324,
    "brightness": 0.564592,
    "contrast": 0.853204,
    "elastic_transform": 0.646056,
    "pixelate": 0.717840,
    "jpeg_compression": 0.606500,
}


def corruption_metrics(
    corrupted: Sequence[str], cells: Sequence[Cell], *, imagenet: bool
) -> tuple[dict[str, Metric], list[Breakdown]]:
    """Metrics over everything, and the accuracy of each cell.

    Args:
        corrupted: of each example a text of 0 and 1: whether it was right in each cell, (n,).
        cells: the corruptions and severities, in the order of the texts.
        imagenet: whether AlexNet's errors belong to the data.

    Returns:
        `corrupted_top1`: the mean accuracy over corruptions and severities. `mce`: the mean corruption error,
        1 for AlexNet; only of ImageNet's validation set, with the fifteen corruptions at all severities. Both
        have bootstrap intervals over examples. Then `top1` of each cell, with a Wilson interval; and of each
        corruption `top1`, the mean over its severities, and where there is an `mce` its part of it, `ce`: the
        error divided by AlexNet's.

    Raises:
        ValueError: a text has not one flag for each cell.
    """
    if wrong := [flags for flags in corrupted if len(flags) != len(cells)]:
        raise ValueError(f"an example has {len(wrong[0])} outcomes, {len(cells)} were to be measured")
    n = len(corrupted)
    shares = [flags.count("1") / len(cells) for flags in corrupted]
    metrics = {"corrupted_top1": _mean(shares, "corrupted_top1", higher_is_better=True)}
    fifteen = [(name, severity) for name in ALEXNET_ERRORS for severity in SEVERITIES]
    if imagenet and set(fifteen) <= set(cells):
        weights = [_weight(cell) for cell in cells]
        errors = [
            sum(weight for weight, flag in zip(weights, flags, strict=True) if flag == "0")
            for flags in corrupted
        ]
        metrics["mce"] = _mean(errors, "mce", higher_is_better=False)
    breakdown = _of_corruptions(corrupted, cells, alexnet="mce" in metrics)
    for position, (name, severity) in enumerate(cells):
        right = sum(flags[position] == "1" for flags in corrupted)
        top1 = proportion(right, n, higher_is_better=True)
        breakdown.append(Breakdown(corruption=name, severity=severity, metrics={"top1": top1}))
    return metrics, breakdown


def _of_corruptions(corrupted: Sequence[str], cells: Sequence[Cell], *, alexnet: bool) -> list[Breakdown]:
    """A row for each corruption, over its severities."""
    found = []
    for name in dict.fromkeys(name for name, _ in cells):
        places = [place for place, cell in enumerate(cells) if cell[0] == name]
        shares = [sum(flags[place] == "1" for place in places) / len(places) for flags in corrupted]
        top1 = _mean(shares, f"{name}/top1", higher_is_better=True)
        metrics = {"top1": top1}
        if alexnet and name in ALEXNET_ERRORS:
            metrics["ce"] = _relative(top1, ALEXNET_ERRORS[name])
        found.append(Breakdown(corruption=name, severity=None, metrics=metrics))
    return found


def _relative(top1: Metric, alexnet: float) -> Metric:
    """The error that belongs to an accuracy, divided by AlexNet's; the interval turns around with it."""
    value, low, high = (
        (1 - x) / alexnet if x is not None else None for x in (top1.value, top1.ci_high, top1.ci_low)
    )
    changed = {"value": value, "ci_low": low, "ci_high": high, "higher_is_better": False}
    return top1.model_copy(update=changed)


def _weight(cell: Cell) -> float:
    """What an error in a cell adds to an example's share of mCE; the extra corruptions add nothing."""
    alexnet = ALEXNET_ERRORS.get(cell[0])
    return 0.0 if alexnet is None else 1 / (alexnet * len(SEVERITIES) * len(ALEXNET_ERRORS))


def _mean(values: Sequence[float], name: str, *, higher_is_better: bool) -> Metric:
    found = bootstrap_mean(values, seed=f"metric/{name}", resamples=bootstrap_resamples(len(values)))
    return Metric(
        value=found.value,
        n=len(values),
        ci_low=found.low,
        ci_high=found.high,
        ci_method="bootstrap",
        higher_is_better=higher_is_better,
    )
