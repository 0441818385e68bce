"""The cells of corrupted test sets: one corruption at one severity each."""

from __future__ import annotations

from assay.service.contract.stored_specs import Params

Cell = tuple[str, int]

TASK = "stored_corruptions"  # The task of data with images that are corrupted already.
SEVERITIES = (1, 2, 3, 4, 5)


def cells_of(params: Params) -> list[Cell]:
    """The corruptions, in the order given, each at every severity, in rising order, without repetition."""
    severities = sorted(set(params["severities"]))
    return [(name, severity) for name in dict.fromkeys(params["corruptions"]) for severity in severities]


def content_label(label: str, params: Params) -> str:
    """Key of the hash of the data of that `data_label`; for stored images with the cells that were read."""
    if params.get("source") != "stored":
        return label
    return f"{label} {' '.join(f'{name}/{severity}' for name, severity in sorted(cells_of(params)))}"
