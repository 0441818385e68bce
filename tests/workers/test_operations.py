"""Operations of models without memory: sums by hand, and models that are not counted."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.catalog.catalog import load
from assay.workers import operations as module
from assay.workers.operations import answer, operations

IMAGENET = {"name": "imagenet", "params": {}}


def reference(name: str, **params: Any) -> Any:
    return {"name": name, "params": params}


def test_a_small_transformer_by_hand() -> None:
    """Five tokens of width 8 in one layer; the gradient of attention's products is twice their passes."""
    n, width, classes = 5, 8, 10
    model = reference("vit", image_size=8, patch_size=4, width=width, depth=1, heads=2)
    linear = 2 * (n - 1) * 16 * width + 2 * n * (4 + 8) * width**2 + 2 * width * classes
    attention = 2 * 2 * n * n * width
    assert operations(model, reference("digits")) == {
        "forward": linear + attention,
        "gradient": linear + 2 * attention,
    }


def test_each_iteration_of_the_pursuit_counts() -> None:
    def forward(iterations: int) -> float:
        params = {"image_size": 8, "patch_size": 4, "width": 8, "depth": 2, "heads": 2}
        return operations(reference("rpc_symvit", iterations=iterations, **params), reference("digits"))[
            "forward"
        ]

    assert forward(3) - forward(2) == forward(2) - forward(1) == 2 * 2 * 5 * 5 * 8


def test_a_model_of_tokens_has_the_gradient_of_its_weights() -> None:
    found = operations(reference("lra_transformer", length=16), reference("lra_image"))
    assert found["gradient"] == pytest.approx(2 * found["forward"], rel=0.05)


MECHANISMS = load().list("attention")
UNCOUNTED = ("rpc_causal", "informer")  # for language; by its input


@pytest.mark.parametrize("mechanism", [one.name for one in MECHANISMS if one.name not in UNCOUNTED])
def test_every_mechanism_is_counted(mechanism: str) -> None:
    """Also those that switch `torch.autocast` off, which has no device without memory."""
    params = {"image_size": 16, "patch_size": 4, "width": 16, "depth": 1, "heads": 2}
    found = operations(reference("vit", **params, attention=reference(mechanism)), reference("digits"))
    assert 0 < found["forward"] < found["gradient"]


@pytest.mark.parametrize(
    ("model", "data", "reason"),
    [
        (reference("exported"), IMAGENET, "an uploaded program is not counted"),
        (reference("lm"), reference("wikitext"), "windows or steps"),
        (reference("vit"), reference("image_folder"), "does not know the classes"),
        (reference("vit", attention=reference("informer")), reference("digits"), "depends on its input"),
        (reference("vit", image_size=9, patch_size=4), IMAGENET, "patch_size must divide image_size"),
    ],
    ids=lambda given: given["name"] if isinstance(given, dict) else None,
)
def test_what_is_not_counted_says_why(model: Any, data: Any, reason: str) -> None:
    assert reason in answer({"model": model, "data": data})["unknown"]


def test_a_pass_is_timed_once_for_equal_arms_and_not_beyond_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    arm = {
        "model": reference("vit", image_size=8, patch_size=4, width=8, depth=1, heads=2),
        "data": reference("digits"),
    }
    timed: list[Any] = []

    def seconds(model: Any, data: Any) -> float:
        timed.append(model)
        raise MemoryError

    first, again = module.answers([arm, dict(arm)])
    assert first == again
    assert 0 < first.pop("core_seconds") < 10
    assert first == operations(**arm)
    monkeypatch.setattr(module, "core_seconds", seconds)
    assert module.answers([arm, dict(arm)]) == [operations(**arm)] * 2, "operations outlive the timing"
    assert len(timed) == 1
    monkeypatch.setattr(module, "TIMING_SECONDS", 0.0)
    module.answers([arm])
    assert len(timed) == 1
