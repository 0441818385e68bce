"""Filters of the templates: values as people read them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any

from assay.service.contract.results import Job, Metric, Warning
from assay.service.contract.warning_codes import SEVERITIES
from assay.service.dashboard.form_fields import parted
from assay.service.plots.theme import without_middle
from assay.service.reports.comparisons import first_of_each
from assay.service.reports.numbers import (
    chosen_params,
    label_title,
    left_text,
    metric_cells,
    number,
    params_text,
    speed_text,
)

MAX_SHORT, MAX_LISTED_NAME, MAX_LISTED, MAX_NAME = 60, 200, 600, 1000
# Shades of words by their loss, and the width of each in nats.
LOSS_BANDS, LOSS_BAND_WIDTH = 5, 2.0


def short(text: object, length: int = MAX_SHORT) -> str:
    """The text without control characters, cut to a length with an ellipsis, between words if it can be."""
    whole = str(text)
    if not whole.isprintable():
        whole = "".join(c if c.isprintable() else " " for c in whole)
    if len(whole) <= length:
        return whole
    words, space, _ = whole[:length].rpartition(" ")
    return f"{words if space and len(words) > length // 2 else whole[: length - 1]}…"


def listed(names: Iterable[str]) -> str:
    """The names, whole, as many as fit into 600 characters, and how many more there are."""
    texts = [short(name, MAX_LISTED_NAME) for name in names]
    ends = accumulate(len(text) + len(", ") for text in texts)
    count = max(1, sum(end <= MAX_LISTED for end in ends))
    return ", ".join(texts[:count]) + (f" and {len(texts) - count} more" if len(texts) > count else "")


def short_name(text: object, length: int = MAX_SHORT) -> str:
    """The name of a job, a study or an arm without control characters, cut to a length in its middle."""
    return without_middle(short(text, MAX_NAME), length)


def duration(seconds: float | None) -> str:
    """Seconds as `1 h 5 min`, `3 min 20 s` or `12 s`; a dash for None."""
    if seconds is None:
        return "-"
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def moment(time: str | float | None) -> str:
    """A time, ISO 8601 or Unix, as `2026-01-31 13:05:09 UTC`; a dash for None."""
    if time is None:
        return "-"
    if isinstance(time, str):
        return f"{time[:10]} {time[11:19]} UTC"
    return f"{datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M:%S} UTC"


def size(count: int) -> str:
    """Bytes as `12.3 MB`."""
    value = float(count)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"


def name_of(job: Job) -> str:
    """The job's name, or its id where it has none; cut to a length."""
    return short_name(job.name.strip() or job.id)


def done_share(job: Job) -> float | None:
    """The part of the job's cost that is done, in [0, 1]; None while its size is unknown."""
    progress = job.progress
    if progress.share is not None:
        return progress.share
    return None if not progress.total else min(1.0, progress.done / progress.total)


def by_severity(warnings: Iterable[Warning]) -> list[Warning]:
    """The warnings, the gravest first."""
    return sorted(warnings, key=lambda warning: SEVERITIES.index(warning.severity))


def interval(metric: Metric) -> str:
    """The interval as text: `[82.1 %, 89.7 %]`, or why there is no interval."""
    return metric_cells(metric)[1]


def shown(metric: Metric) -> str:
    """The value as text."""
    return number(metric.value, metric.unit)


def pretty(value: object) -> str:
    """JSON with indents."""
    return json.dumps(value, indent=2, ensure_ascii=False)


def parameters(params: Mapping[str, Any], kind: str = "", name: str = "") -> str:
    """Parameters that are set, as `epsilon=2/255 steps=20`; with a component those that are no default."""
    return params_text(chosen_params(name, params, kind))


def model_title(model: Mapping[str, Any]) -> str:
    """A model's name, and of an upload the name of its weights: "exported net"."""
    return f"{model['name']} {(model.get('weights') or {}).get('checkpoint') or ''}".strip()


def data_title(data: Mapping[str, Any]) -> str:
    """A data set's name, and the name of its folder: "image_folder photos"."""
    return f"{data['name']} {data['params'].get('folder') or ''}".strip()


def loss_band(loss: float) -> int:
    """The shade of a word by its loss in nats, from 0; its style sheet class has the number."""
    return int(max(0.0, min(LOSS_BANDS - 1, loss / LOSS_BAND_WIDTH)))


FILTERS: Mapping[str, Callable[..., Any]] = {
    "by_severity": by_severity,
    "data_title": data_title,
    "done_share": done_share,
    "duration": duration,
    "first_of_each": first_of_each,
    "interval": interval,
    "label_title": label_title,
    "left_text": left_text,
    "loss_band": loss_band,
    "model_title": model_title,
    "listed": listed,
    "moment": moment,
    "name_of": name_of,
    "number": number,
    "parameters": parameters,
    "parted": parted,
    "pretty": pretty,
    "short": short,
    "short_name": short_name,
    "shown": shown,
    "size": size,
    "speed_text": speed_text,
}
