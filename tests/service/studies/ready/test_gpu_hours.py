"""GPU-hours of a study: the arithmetic against values calculated by hand, and costs that are not known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay.service.contract import extras
from assay.service.studies.cli import plan_text
from assay.service.studies.ready import gpu_hours as module
from assay.service.studies.ready.gpu_hours import (
    CONVOLUTIONAL,
    SMALLEST,
    TRANSFORMER,
    GpuHours,
    MeasuredNetwork,
    counted,
    gpu_hours,
    hours_text,
)
from assay.service.studies.wire import GUESS, ArmEstimate, StudyDryRun
from assay.workers.operations import operations

RESULTS = Path(__file__).resolve().parents[4] / "benchmarks" / "results-gpu.json"
TINY = {"forward": 2_333_073_408.0, "gradient": 2_690_737_152.0}  # SymViT-tiny, 224 px
SMALL_VIT = {"image_size": 32, "patch_size": 4, "width": 192, "depth": 6, "heads": 3}
# Below every measured network: a pass takes as long as the smallest network's.
LITTLE = {"forward": 1e6, "gradient": 1e6}


def planned(
    arms: int, seeds: int, train: Any, evaluate: Any, model: str = "symvit_tiny", **facts: Any
) -> StudyDryRun:
    one = ArmEstimate(
        name="a", trained=train is not None, jobs=2, shared=0, train_seconds=None, evaluate_seconds=None,
        train=None, evaluate={}, warnings=[], train_passes=train, evaluate_passes=evaluate,
    )  # fmt: skip
    listed = [one.model_copy(update={"name": f"arm {number}", **facts}) for number in range(arms)]
    spec = {"model": {"name": model, "params": {}}, "data": {"name": "imagenet", "params": {}}}
    study = {"arms": [spec] * arms, "seeds": [*range(seeds)], "execution": {"device": "auto"}}
    return StudyDryRun(
        spec=study, jobs=0, trainings=0, evaluations=0,
        seconds=None, arms=listed, notes=[],
    )  # fmt: skip


def hours(monkeypatch: pytest.MonkeyPatch, study: StudyDryRun, found: dict[str, Any]) -> GpuHours:
    monkeypatch.setattr(module, "counted", lambda arms: [found for _ in arms])
    return gpu_hours(study)


def test_five_arms_of_table_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """300 epochs of 1,281,167 images; 50,000, 7,500, 30,000, 12,000 and 75 times 50,000 images."""
    found = hours(monkeypatch, planned(5, 5, (384_350_100, 384_350_100), (3_849_500, 0)), TINY)
    assert found.trainings == pytest.approx(1318.6, rel=1e-4)
    assert found.evaluations == pytest.approx(4.4022, rel=1e-4)
    table = [line.split() for line in hours_text(found).splitlines()]
    assert table[1] == ["H100", "1,319", "4.4", "1,323", "55", "6.9"]
    assert table[2] == ["A100", "(scaled)", "4,531", "15", "4,546", "189", "24"]


def test_three_small_arms(monkeypatch: pytest.MonkeyPatch) -> None:
    """25 epochs of 50,000 images; clean, PGD-20 and 75 corruptions of 10,000."""
    found = hours(monkeypatch, planned(3, 5, (1_250_000, 1_250_000), (990_000, 200_000)), LITTLE)
    assert found.trainings == pytest.approx(0.40332, rel=1e-4)
    assert found.evaluations == pytest.approx(0.12914, rel=1e-4)


def test_large_models_and_pulled_models_have_the_rate_of_the_larger_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def of(model: str) -> float:
        study = planned(1, 1, None, (10_000, 0), model)
        return hours(monkeypatch, study, {"forward": 35e9, "gradient": 40e9}).evaluations

    assert of("symvit_base") == pytest.approx(10_000 * 35e9 / 27.241e12 / 3600, rel=1e-4)
    assert of("timm") == pytest.approx(10_000 * 35e9 / 17.175e12 / 3600, rel=1e-4)


def test_a_shared_training_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    own = hours(monkeypatch, planned(1, 2, (10**6, 10**6), (10, 0)), TINY)
    shared = hours(monkeypatch, planned(1, 2, (10**6, 10**6), (10, 0), shared=2), TINY)
    assert (own.trainings > 0, shared.trainings) == (True, 0)
    assert own.evaluations == shared.evaluations


def test_the_rates_are_of_the_measured_tables() -> None:
    pages = json.loads(RESULTS.read_text())
    tables = {part["title"]: part["rows"] for part in _tables(pages)}
    for title, arithmetic, network in (
        ("Throughput of PGD: ViT-S/16, 224 px", "engine, float32", TRANSFORMER),
        ("Throughput of PGD: ResNet-50, 224 px", "engine, float32", CONVOLUTIONAL),
        (
            "Throughput of PGD: ViT 32 px, 6 blocks of width 192, 65 tokens",
            "hand-written loop, float32",
            SMALLEST,
        ),
    ):
        assert dict(tables[title])[arithmetic] == f"{network.images:g}"
    rates = [network.rate / 1e12 for network in (SMALLEST, CONVOLUTIONAL, TRANSFORMER)]
    assert rates == pytest.approx([14.168, 17.175, 27.241], rel=1e-4)


@pytest.mark.costly
@pytest.mark.parametrize(
    ("network", "model", "params", "data"),
    [
        (TRANSFORMER, "deit_small", {}, "imagenet"),
        (SMALLEST, "vit", SMALL_VIT, "cifar10"),
        (CONVOLUTIONAL, "timm", {"architecture": "resnet50", "image_size": 224}, "imagenet"),
    ],
    ids=lambda given: getattr(given, "name", None),
)
def test_the_measured_networks_have_these_operations(
    network: MeasuredNetwork, model: str, params: dict[str, Any], data: str
) -> None:
    found = operations({"name": model, "params": params, "weights": None}, {"name": data, "params": {}})
    assert found == {"forward": network.forward, "gradient": network.gradient}


def _tables(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, dict):
        inner = [table for part in value.values() for table in _tables(part)]
        return [value, *inner] if {"title", "rows"} <= value.keys() else inner
    return [table for part in value for table in _tables(part)] if isinstance(value, list) else []


def test_hours_of_a_core_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a seed 100 forward and as many backward passes, twice as dear; 50 forward and 10 of the gradient."""
    counted_here = LITTLE | {"gradient": 3e6, "core_seconds": 0.5}
    found = hours(monkeypatch, planned(2, 3, (100, 100), (50, 10)), counted_here)
    assert found.core == pytest.approx(2 * 3 * 0.5 * (100 + 200 + 50 + 30) / 3600)
    assert found.timed == dict.fromkeys(("arm 0", "arm 1"), (0.5 * 300, 0.5 * 80))
    again = hours(monkeypatch, planned(1, 1, (100, 100), (50, 10), shared=1), counted_here)
    assert again.core == pytest.approx(0.5 * (50 + 30) / 3600)
    for partly in (LITTLE, counted_here | {"forward": 0.0}, {"unknown": "it was not counted"}):
        assert hours(monkeypatch, planned(1, 1, None, (1, 0)), partly).core is None


@pytest.mark.parametrize(
    ("device", "core_seconds", "gpus"), [("auto", 0.001, False), ("auto", 10.0, True), ("cuda", 0.001, True)]
)
def test_a_plan_has_a_single_time_and_hours_of_gpus_where_they_are_of_use(
    monkeypatch: pytest.MonkeyPatch, device: str, core_seconds: float, *, gpus: bool
) -> None:
    guess = {"seconds": 0.5, "seconds_measured": False, "device": "cpu"}
    study = planned(2, 3, (100, 100), (50, 0)).model_copy(
        update={"seconds": 6.0, "notes": [f"{GUESS} a guess; large models take far longer"]}
    )
    study.spec["execution"]["device"] = device
    arms = [arm.model_copy(update={"train": guess, "evaluate": guess}) for arm in study.arms]
    study = study.model_copy(update={"arms": arms})
    text = plan_text(study, hours(monkeypatch, study, LITTLE | {"core_seconds": core_seconds}))
    if device == "auto":
        said = "of computing, by timed passes of the models on one core of this machine; "
        assert ("about 2.1 s " + said in text) == (core_seconds == 0.001)
        assert said in text
        assert "guess" not in text
        assert "~" not in text
    else:
        assert "about 6 s of computing; " in text
    assert text.count("of computing") == 1
    assert ("GPU-HOURS" in text) == gpus


def test_what_is_unknown_is_said_and_not_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = hours(monkeypatch, planned(2, 1, None, (10, 0)), {"unknown": "it was not counted"})
    assert (found.trainings, found.evaluations) == (0, 0)
    assert hours_text(found) == "GPU-hours unknown: 'arm 0', 'arm 1': it was not counted"
    for train, evaluate in (((1, 1), None), (None, None)):
        found = hours(monkeypatch, planned(1, 1, train, evaluate), TINY)
        assert "is known when the jobs are planned" in hours_text(found)
    found = hours(monkeypatch, planned(1, 1, None, (1, 0), trained=True), TINY)
    assert found.unknown.keys() == {"arm 0"}


def test_a_machine_that_cannot_count_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    arm = planned(1, 1, None, (1, 0)).spec["arms"][0]
    foreign = {**arm, "model": {"name": "of_another_package", "params": {}}}
    assert [one["unknown"] for one in counted([foreign] * 2)] == 2 * [
        "the catalog of this machine lacks the model"
    ]
    monkeypatch.setattr(module, "COUNT_SECONDS", 1e-3)
    assert "counting took longer" in counted([arm, foreign])[1]["unknown"]
    monkeypatch.undo()
    monkeypatch.setattr(extras, "has_module", lambda name: name != "torch")
    assert "pip install 'assay-robustness[worker]'" in counted([arm])[0]["unknown"]
    monkeypatch.undo()
    monkeypatch.setattr(module, "COUNT", "assay.workers.there_is_no_such_module")
    assert "counting the operations of models failed" in counted([arm])[0]["unknown"]


@pytest.mark.costly
def test_models_are_counted_in_a_process() -> None:
    arm = planned(1, 1, None, (1, 0)).spec["arms"][0]
    words = {"model": {"name": "lm", "params": {}}, "data": {"name": "wikitext", "params": {}}}
    foreign = {**arm, "model": {"name": "of_another_package", "params": {}}}
    found, unknown, missing = counted([arm, words, foreign])
    assert 0 < found.pop("core_seconds") < 60
    assert found == TINY
    assert "windows or steps" in unknown["unknown"]
    assert "of_another_package" in missing["unknown"]
