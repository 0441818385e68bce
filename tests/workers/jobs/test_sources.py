"""The models of other jobs in plan and shards: whole requests on small real models."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
from torch import nn

from assay.workers.jobs import evaluate, plan
from assay.workers.jobs import session as module
from assay.workers.jobs.failures import BadWeights, OtherData
from assay.workers.jobs.session import Session
from assay.workers.weights.export import export_program

N = 64
ATTACK = {"epsilon": 0.05, "norm": "Linf", "attack": "pgd", "steps": 2, "restarts": 1}


def trained(
    folder: Path, spec: dict[str, Any], job: str, seed: int, **params: Any
) -> tuple[dict[str, Any], str]:
    """A request's entry for a training job, with the hash of its weights; random ones suffice."""
    model = {**spec["model"], "params": spec["model"]["params"] | params}
    own = copy.deepcopy(spec) | {"kind": "train", "seed": seed, "model": model}
    loaded = Session().classifier(own, device="cpu", weights=None)
    path = folder / job / "weights.safetensors"
    path.parent.mkdir(exist_ok=True)
    safetensors.torch.save_file(loaded.classifier.state_dict(), path)
    return {"spec": own, "weights": str(path)}, loaded.weights_sha256


def request(spec: dict[str, Any], *jobs: str, **sources: dict[str, Any]) -> dict[str, Any]:
    evaluations = [{"name": "transfer", "params": {**ATTACK, "job": job}, "data": None} for job in jobs]
    clean = {"name": "clean", "params": {}, "data": None}
    whole = spec | {"limit": N, "evaluations": [clean, *evaluations], "save_adversarial": False}
    return {"spec": whole, "weights": None, "sources": sources, "shard_seconds": 100.0}


def planned(asked: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = plan.run(asked, Session(), lambda _: None)["plan"]
    return found


def shard(asked: dict[str, Any], made: dict[str, Any], evaluation: int = 1) -> dict[str, Any]:
    of_shard = asked | {"plan": made, "evaluation": evaluation, "start": 0, "stop": N}
    return evaluate.run(of_shard, Session(), lambda _: None)


def test_the_plan_records_each_model_once_and_shards_take_these(spec: dict[str, Any], tmp_path: Path) -> None:
    (one, first), (two, second) = (trained(tmp_path, spec, name, seed) for name, seed in (("a", 1), ("b", 2)))
    asked = request(spec, "a", "b", "a", a=one, b=two)
    made = planned(asked)
    params = spec["model"]["params"]
    assert made["sources"] == {
        "a": {"model": {"name": "symvit", "params": params}, "weights_sha256": first},
        "b": {"model": {"name": "symvit", "params": params}, "weights_sha256": second},
    }
    assert first != second != made["weights_sha256"]
    answers = [shard(asked, made, index) for index in (1, 2, 3)]
    losses = [answer["columns"]["loss"] for answer in answers]
    assert losses[0] == losses[2] != losses[1]


def test_several_models_of_one_attack_are_loaded_once_for_all_shards(
    spec: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one, _), (two, _) = (trained(tmp_path, spec, name, seed) for name, seed in (("a", 1), ("b", 2)))
    asked = request(spec, "a", a=one, b=two)
    asked["spec"]["evaluations"][1]["params"]["others"] = ["b"]
    made = planned(asked)
    assert sorted(made["sources"]) == ["a", "b"]
    session, loads = Session(), []
    load = module._load

    def counted(*given: Any, **named: Any) -> Any:
        loads.append(given[3])
        return load(*given, **named)

    monkeypatch.setattr(module, "_load", counted)
    answers = [
        evaluate.run(
            asked | {"plan": made, "evaluation": 1, "start": start, "stop": start + N // 2},
            session,
            lambda _: None,
        )
        for start in (0, N // 2)
    ]
    # The evaluated model has random weights; the two others come from files.
    assert sorted(str(path) for path in loads if path is not None) == sorted([one["weights"], two["weights"]])
    together = [loss for answer in answers for loss in answer["columns"]["loss"]]
    alone = asked | {"spec": copy.deepcopy(asked["spec"])}
    alone["spec"]["evaluations"][1]["params"].pop("others")
    assert together != shard(alone, planned(alone))["columns"]["loss"]


def test_a_plan_without_attacks_from_other_models_records_none(spec: dict[str, Any]) -> None:
    assert planned(request(spec))["sources"] == {}


def test_weights_that_changed_since_the_plan_are_refused(spec: dict[str, Any], tmp_path: Path) -> None:
    source, _ = trained(tmp_path, spec, "a", 1)
    asked = request(spec, "a", a=source)
    made = planned(asked)
    shard(asked, made)
    trained(tmp_path, spec, "a", 2)
    with pytest.raises(ValueError, match="the weights of job a changed since the job was planned"):
        shard(asked, made)
    assert shard(asked, made, 0)["n"] == N, "what needs it not goes on"
    del made["sources"]  # as an earlier version has planned it
    assert shard(asked, made)["n"] == N


def test_a_shard_with_other_data_than_the_plan_is_not_measured(spec: dict[str, Any]) -> None:
    asked = request(spec)
    made = planned(asked)
    assert shard(asked, made, 0)["n"] == N
    (label,) = made["data_sha256"]
    with pytest.raises(OtherData, match=f"the data set {label} has the content {made['data_sha256'][label]}"):
        shard(asked, made | {"data_sha256": {label: "0" * 64}}, 0)


def test_a_model_that_is_gone_or_does_not_fit_fails_the_plan(spec: dict[str, Any], tmp_path: Path) -> None:
    source, _ = trained(tmp_path, spec, "a", 1)
    with pytest.raises(BadWeights, match=r"evaluations\[1\]\.params\.job: job a.*was deleted"):
        planned(request(spec, "a"))
    other, _ = trained(tmp_path, spec, "b", 1, image_size=32)
    with pytest.raises(ValueError, match=r"evaluations\[2\]\.params\.job: .* images of 32 pixels.* for 16"):
        planned(request(spec, "a", "b", a=source, b=other))
    colours = source | {"spec": source["spec"] | {"data": {"name": "cifar10", "params": {"folder": None}}}}
    Path(source["weights"]).unlink()
    with pytest.raises(BadWeights, match="of job a is gone"):
        planned(request(spec, "a", a=source))
    with pytest.MonkeyPatch.context() as patch:
        digits = Session().data(spec["data"], "test")
        three = copy.copy(digits)
        three.__dict__["channels"] = 3
        patch.setattr(
            Session, "data", lambda self, data, split: three if data["name"] == "cifar10" else digits
        )
        with pytest.raises(ValueError, match=r"params\.job: .*made for 3 channels, 'digits' has 1"):
            planned(request(spec, "a", a=colours))


@pytest.mark.parametrize("compared", [True, False])
def test_the_plan_has_the_programs_whose_gradients_were_not_compared(
    spec: dict[str, Any], tmp_path: Path, compared: bool
) -> None:
    size, channels = spec["model"]["params"]["image_size"], 1
    net = nn.Sequential(nn.Flatten(), nn.Linear(channels * size**2, 10))
    path = tmp_path / "net.pt2"
    export_program(net, path, image_size=size, channels=channels, original=compared)
    model = {"name": "exported", "params": {}, "weights": {"checkpoint": "net"}}
    upload = {"spec": copy.deepcopy(spec) | {"kind": "evaluate", "model": model}, "weights": str(path)}
    other = f"checkpoint:net@{'a' * 64}"
    made = planned(request(spec, other, **{other: upload}))
    assert made["sources_not_compared"] == ([] if compared else [other])
    assert [*made["sources"]] == [other]
