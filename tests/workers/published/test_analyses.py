"""Published numbers next to the rows of analyses, for the published architectures alone."""

from __future__ import annotations

from assay.workers.published.analyses import TABLE_13, analysis_references
from assay.workers.published.match import IMAGENET

SYMVIT = {"name": "symvit_tiny", "params": {"image_size": 224, "patch_size": 16, "drop_path": 0.1}}


def test_table_13_stands_next_to_models_of_the_same_architecture() -> None:
    found = {r.metric: r for r in analysis_references("efficiency", SYMVIT, None)}
    assert found["multiply_adds"].value == 1.17e9
    assert found["test_seconds"].value == 0.010
    assert found["train_memory"].value == 1435e6
    assert "batch size and how memory was measured not stated" in found["parameters"].protocol
    smaller = SYMVIT | {"params": SYMVIT["params"] | {"image_size": 32}}  # type: ignore[operator]
    assert analysis_references("efficiency", smaller, None) == []
    assert analysis_references("clean", SYMVIT, IMAGENET) == []
    assert len(TABLE_13) == 5


def test_published_eigenvalues_stand_next_to_vit_tiny_on_imagenet() -> None:
    sizes = {"image_size": 224, "patch_size": 16, "width": 192, "depth": 12, "heads": 3, "mlp_ratio": 4.0}
    softmax = {"attention": {"name": "softmax", "params": {}}, "layers": "all"}
    vit = {"name": "vit", "params": sizes | softmax}
    found = [r.value for r in analysis_references("eigenvector_check", vit, IMAGENET)]
    assert found == [648.46, 4.65, 40.07, 17.73]
    assert analysis_references("eigenvector_check", vit, None) == []
    assert analysis_references("eigenvector_check", SYMVIT, IMAGENET) == []
