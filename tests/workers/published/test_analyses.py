"""Published numbers next to the rows of analyses, for the published architectures alone."""

from __future__ import annotations

from typing import Any

from assay.service.contract.results import Reference
from assay.workers.published.analyses import TABLE_13, analyses
from assay.workers.published.match import IMAGENET, MeasuredRow

SYMVIT = {"name": "symvit_tiny", "params": {"image_size": 224, "patch_size": 16, "drop_path": 0.1}}


def shown(name: str, model: Any, known_as: str | None) -> list[Reference]:
    item: Any = {"name": name, "params": {}, "data": None}
    return analyses(MeasuredRow(model, item, item, "pixel", known_as, {}))


def test_table_13_stands_next_to_models_of_the_same_architecture() -> None:
    found = {r.metric: r for r in shown("efficiency", SYMVIT, None)}
    assert found["multiply_adds"].value == 1.17e9
    assert found["test_seconds"].value == 0.010
    assert found["train_memory"].value == 1435e6
    assert "batch size and how memory was measured not stated" in found["parameters"].protocol
    smaller = SYMVIT | {"params": SYMVIT["params"] | {"image_size": 32}}  # type: ignore[operator]
    assert shown("efficiency", smaller, None) == []
    assert shown("clean", SYMVIT, IMAGENET) == []
    assert len(TABLE_13) == 5


def test_published_eigenvalues_stand_next_to_vit_tiny_on_imagenet() -> None:
    sizes = {"image_size": 224, "patch_size": 16, "width": 192, "depth": 12, "heads": 3, "mlp_ratio": 4.0}
    softmax = {"attention": {"name": "softmax", "params": {}}, "layers": "all"}
    vit = {"name": "vit", "params": sizes | softmax}
    found = [r.value for r in shown("eigenvector_check", vit, IMAGENET)]
    assert found == [648.46, 4.65, 40.07, 17.73]
    assert shown("eigenvector_check", vit, None) == []
    assert shown("eigenvector_check", SYMVIT, IMAGENET) == []
