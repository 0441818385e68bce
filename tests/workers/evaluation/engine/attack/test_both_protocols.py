"""The protocol of a shard chooses the model that an attack sees, and the range of its inputs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from assay.workers.evaluation.engine.attack import both_protocols


@pytest.mark.parametrize("protocol", ["paper", "pixel"])
def test_the_protocol_chooses_the_model_and_the_range(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, Any, dict[str, Any]]] = []
    for name in ("paper", "pixel"):
        monkeypatch.setattr(
            both_protocols,
            f"attack_{name}",
            lambda attack, model, *subject, name=name, **options: calls.append((name, model, options)),
        )
    told: list[tuple[str, int]] = []
    shard: Any = SimpleNamespace(
        protocol=protocol, classifier="classifier", labels=[], ids=[], save_adversarial=False, capture=False,
        save_traces=0, preparing=None, compiled=False, screening=None, running={"batch_size": 2},
        staged=lambda name, left: told.append((name, left)),
    )  # fmt: skip
    given: Any = ("attack", shard, "inputs", "draws", "candidates")
    backbone: Any = "backbone"
    both_protocols.attack_shard(*given, pixel_model=backbone, box=None)
    [(used, model, options)] = calls
    assert (used, model) == (protocol, {"paper": "classifier", "pixel": "backbone"}[protocol])
    assert options["batch_size"] == 2
    assert ("box" in options) == (protocol == "pixel")
    if protocol == "pixel":
        options["staged"](SimpleNamespace(name="apgd_ce", n=10, broken=4))
        assert told == [("apgd_ce", 6)]
